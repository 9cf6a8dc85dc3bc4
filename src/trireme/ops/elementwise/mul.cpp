#include "trireme/ops/elementwise/mul.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef mul_def() {
  ir::OpDef def = elementwise_def("mul", {"a", "b"}, 1, 1);
  def.traits.linear = ir::Linear::separately;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "a");
    expect_compute(inputs[1], "b");
    expect_broadcast(inputs[0], inputs[1]);
    return {inputs[0]};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.needs(0)) g.set(0, mul(g.grad(), g.input(1)));
    if (g.needs(1)) g.set(1, sum_to(mul(g.grad(), g.input(0)), g.input(1).type()));
  };
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_mul_cpu);
  return checked(std::move(def));
}

ir::Value mul(ir::Value a, ir::Value b) { return ir::apply1("mul", {a, b}); }

ir::OpDef scale_def() {
  ir::OpDef def = elementwise_def("scale", {"x"}, 1, 1, {{"factor", 1.0}});
  def.traits.linear = ir::Linear::jointly;
  def.gradient = [](ir::GradientContext& g) { g.set(0, scale(g.grad(), g.attributes().real("factor"))); };
  on_cpu(def, prepare_scale_cpu);
  return def;
}

ir::Value scale(ir::Value x, double factor) { return ir::apply1("scale", {x}, {{"factor", factor}}); }

}  // namespace trireme::ops
