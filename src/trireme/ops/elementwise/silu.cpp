#include "trireme/ops/elementwise/silu.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef silu_def() {
  ir::OpDef def = elementwise_def("silu", {"x"}, 1, 16);
  def.gradient = [](ir::GradientContext& g) { g.set(0, ir::apply1("silu_grad", {g.input(0), g.grad()})); };
  on_cpu(def, prepare_silu_cpu);
  return def;
}

ir::OpDef silu_grad_def() {
  ir::OpDef def = elementwise_def("silu_grad", {"x", "dy"}, 1, 20);
  def.no_gradient = "second derivatives are not taken";
  on_cpu(def, prepare_silu_grad_cpu);
  return def;
}

ir::OpDef swiglu_def() {
  ir::OpDef def = elementwise_def("swiglu", {"gate", "up"}, 1, 17);
  def.gradient = [](ir::GradientContext& g) {
    const auto grads = ir::apply("swiglu_grad", {g.input(0), g.input(1), g.grad()});
    g.set(0, grads[0]);
    g.set(1, grads[1]);
  };
  on_cpu(def, prepare_swiglu_cpu);
  return def;
}

ir::OpDef swiglu_grad_def() {
  ir::OpDef def = elementwise_def("swiglu_grad", {"gate", "up", "dy"}, 2, 24);
  def.no_gradient = "second derivatives are not taken";
  on_cpu(def, prepare_swiglu_grad_cpu);
  return def;
}

}  // namespace trireme::ops
