#include "trireme/ops/attention/softmax.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// The definition of an op on rows: every dimension but the last may be cut.
ir::OpDef row_def(const char* name, std::vector<ir::OperandSpec> operands, double flops) {
  ir::OpDef def;
  def.name = name;
  def.infer = [operands](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], operands[0].name.c_str());
    if (inputs[0].shape.rank() < 1) fail("'{}' must have at least one dimension", operands[0].name);
    for (std::size_t i = 1; i < inputs.size(); ++i) expect_type(inputs[i], inputs[0], operands[i].name.c_str());
    return {inputs[0]};
  };
  def.operands = std::move(operands);
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Factors factors = aligned_factors(inputs, outputs);
    factors.factors.back().kind = ir::Factor::Kind::whole;
    return factors;
  };
  def.cost = [flops](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, flops);
  };
  def.with_precision(ir::Precision::follow);
  for (int i = 0; i < static_cast<int>(def.operands.size()); ++i) def.traits.in_place.emplace_back(0, i);
  return def;
}

}  // namespace

ir::OpDef softmax_def() {
  ir::OpDef def = row_def("softmax", {{"x"}}, 10);
  def.gradient = [](ir::GradientContext& g) { g.set(0, ir::apply1("softmax_grad", {g.output(0), g.grad()})); };
  on_cpu(def, prepare_softmax_cpu);
  return checked(def);
}

ir::Value softmax(ir::Value x) { return ir::apply1("softmax", {x}); }

ir::OpDef softmax_grad_def() {
  ir::OpDef def = row_def("softmax_grad", {{"y"}, {"dy"}}, 4);
  def.no_gradient = "second derivatives are not taken";
  on_cpu(def, prepare_softmax_grad_cpu);
  return checked(def);
}

}  // namespace trireme::ops
