#include "trireme/ops/elementwise/elementwise.h"

#include <numeric>

namespace trireme::ops {

ir::OpDef elementwise_def(std::string name, std::vector<std::string> operands, int outputs, double flops,
                          std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::move(name);
  def.attributes = std::move(attributes);
  for (int input = 0; input < static_cast<int>(operands.size()); ++input)
    for (int output = 0; output < outputs; ++output) def.traits.in_place.emplace_back(output, input);
  for (const std::string& operand : operands) def.operands.push_back({operand});
  def.infer = [operands = std::move(operands), outputs](std::span<const TensorType> inputs, const ir::Attributes&) {
    expect_compute(inputs[0], operands[0].c_str());
    for (std::size_t i = 1; i < inputs.size(); ++i) expect_type(inputs[i], inputs[0], operands[i].c_str());
    return ir::Types(static_cast<std::size_t>(outputs), inputs[0]);
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> results, const ir::Attributes&) {
    return aligned_factors(inputs, results);
  };
  def.cost = [flops](std::span<const TensorType> inputs, std::span<const TensorType> results, const ir::Attributes&) {
    return one_pass(inputs, results, flops);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.elementwise = true;
  def.traits.pads = true;
  return checked(std::move(def));
}

void expect_broadcast(const TensorType& a, const TensorType& b) {
  const int extra = a.shape.rank() - b.shape.rank();
  if (extra < 0 || !(a.shape.slice(extra, a.shape.rank()) == b.shape))
    fail("'b' must have the shape of 'a', a suffix of it or [], got {} for {}", b.str(), a.str());
}

ir::Value sum_to(ir::Value gradient, const TensorType& operand) {
  const int extra = gradient.shape().rank() - operand.shape.rank();
  if (extra > 0) {
    std::vector<std::int64_t> dims(static_cast<std::size_t>(extra));
    std::iota(dims.begin(), dims.end(), 0);
    const char* out = operand.dtype == DType::f32 ? "f32" : "same";
    gradient = ir::apply1("reduce", {gradient}, {{"dims", dims}, {"out", std::string(out)}});
  }
  if (gradient.dtype() == operand.dtype) return gradient;
  return ir::apply1("cast", {gradient}, {{"to", std::string(name_of(operand.dtype))}});
}

}  // namespace trireme::ops
