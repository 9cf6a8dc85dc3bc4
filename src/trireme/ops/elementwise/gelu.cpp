#include "trireme/ops/elementwise/gelu.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef gelu_def() {
  ir::OpDef def = elementwise_def("gelu", {"x"}, 1, 20, {{"tanh", false}});
  def.gradient = [](ir::GradientContext& g) {
    g.set(0, ir::apply1("gelu_grad", {g.input(0), g.grad()}, {{"tanh", g.attributes().boolean("tanh")}}));
  };
  on_cpu(def, prepare_gelu_cpu);
  return def;
}

ir::OpDef gelu_grad_def() {
  ir::OpDef def = elementwise_def("gelu_grad", {"x", "dy"}, 1, 30, {{"tanh", false}});
  def.no_gradient = "second derivatives are not taken";
  on_cpu(def, prepare_gelu_grad_cpu);
  return def;
}

}  // namespace trireme::ops
