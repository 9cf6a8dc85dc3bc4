#include "trireme/ops/elementwise/select.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef select_def() {
  ir::OpDef def = elementwise_def("select", {"flag", "a", "b"}, 1, 0);
  def.operands.front().keep_f32 = true;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_type(inputs[0], {DType::f32, {}}, "flag");
    expect_type(inputs[2], inputs[1], "b");
    return {inputs[1]};
  };
  def.gradient = [](ir::GradientContext& g) {
    const ir::Value zeros = g.zeros(g.grad().type());
    if (g.needs(1)) g.set(1, select(g.input(0), g.grad(), zeros));
    if (g.needs(2)) g.set(2, select(g.input(0), zeros, g.grad()));
  };
  // Only one of a and b is read.
  def.cost = [](std::span<const TensorType>, std::span<const TensorType> outputs, const ir::Attributes&) {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    return ir::Cost{0, bytes, bytes};
  };
  def.traits.in_place = {{0, 1}, {0, 2}};
  on_cpu(def, prepare_select_cpu);
  return checked(std::move(def));
}

ir::Value select(ir::Value flag, ir::Value a, ir::Value b) { return ir::apply1("select", {flag, a, b}); }

}  // namespace trireme::ops
