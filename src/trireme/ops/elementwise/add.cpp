#include "trireme/ops/elementwise/add.h"

#include "trireme/ops/elementwise/cpu_kernels.h"
#include "trireme/ops/elementwise/elementwise.h"

namespace trireme::ops {

ir::OpDef add_def() {
  ir::OpDef def = elementwise_def("add", {"a", "b"}, 1, 1);
  def.traits.linear = ir::Linear::jointly;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "a");
    expect_compute(inputs[1], "b");
    expect_broadcast(inputs[0], inputs[1]);
    return {inputs[0]};
  };
  // What is added to every row is added to padded ones too.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> results, const ir::Attributes&) {
    ir::Factors factors = aligned_factors(inputs, results);
    const int repeated = inputs[0].shape.rank() - inputs[1].shape.rank();
    for (int d = 0; d < repeated; ++d) factors.factors[static_cast<std::size_t>(d)].exact = true;
    return factors;
  };
  def.gradient = [](ir::GradientContext& g) {
    g.set(0, g.grad());
    if (g.needs(1)) g.set(1, sum_to(g.grad(), g.input(1).type()));
  };
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_add_cpu);
  return checked(std::move(def));
}

ir::OpDef add_n_def() {
  ir::OpDef def = elementwise_def("add_n", {"xs"}, 1, 1);
  def.traits.linear = ir::Linear::jointly;
  def.operands.front().variadic = true;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    if (inputs.empty()) fail("expected at least one operand, got none");
    expect_compute(inputs[0], "xs");
    for (const TensorType& input : inputs) expect_type(input, inputs[0], "xs");
    return {inputs[0]};
  };
  def.gradient = [](ir::GradientContext& g) {
    for (std::size_t i = 0; i < g.inputs(); ++i) g.set(i, g.grad());
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, static_cast<double>(inputs.size() - 1));
  };
  on_cpu(def, prepare_add_n_cpu);
  return checked(std::move(def));
}

ir::OpDef accumulate_def() {
  ir::OpDef def = elementwise_def("accumulate", {"acc", "x"}, 1, 1);
  def.traits.linear = ir::Linear::jointly;
  def.operands.front().keep_f32 = true;
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "acc");
    expect_compute(inputs[1], "x");
    expect_shape(inputs[1], inputs[0].shape, "x");
    return {inputs[0]};
  };
  def.gradient = [](ir::GradientContext& g) {
    g.set(0, g.grad());
    if (g.needs(1)) g.set(1, sum_to(g.grad(), g.input(1).type()));
  };
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_accumulate_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
