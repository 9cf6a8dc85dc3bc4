#include "trireme/ops/elementwise/relu.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef relu_def() {
  ir::OpDef def = elementwise_def("relu", {"x"}, 1, 1);
  def.gradient = [](ir::GradientContext& g) { g.set(0, ir::apply1("relu_grad", {g.output(0), g.grad()})); };
  on_cpu(def, prepare_relu_cpu);
  return def;
}

ir::OpDef relu_grad_def() {
  ir::OpDef def = elementwise_def("relu_grad", {"y", "dy"}, 1, 1);
  def.no_gradient = "second derivatives are not taken";
  on_cpu(def, prepare_relu_grad_cpu);
  return def;
}

}  // namespace trireme::ops
