#include "trireme/ops/optimizer/optimizer.h"

namespace trireme::ops {

ir::OpDef update_rule(std::string name, std::vector<std::string> tensors, std::vector<std::string> scalars,
                      double flops, std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::move(name);
  def.attributes = std::move(attributes);
  def.attributes.push_back({"low", std::string("none")});
  std::vector<std::string> names;
  int output = 0;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    names.push_back(tensors[static_cast<std::size_t>(i)]);
    if (i != 1) def.traits.in_place.emplace_back(output++, i);
  }
  def.traits.in_place.emplace_back(output, 1);  // the low copy over a gradient of as many bytes
  names.insert(names.end(), scalars.begin(), scalars.end());
  for (std::size_t i = 0; i < names.size(); ++i)
    def.operands.push_back({.name = names[i], .optional = false, .variadic = false, .keep_f32 = i != 1});
  def.operands.push_back({.name = "keep", .optional = true, .variadic = false, .keep_f32 = true});
  def.infer = [names, count = tensors.size()](std::span<const TensorType> inputs, const ir::Attributes& given) {
    expect_dtype(inputs[0], DType::f32, names[0].c_str());
    expect_compute(inputs[1], names[1].c_str());
    expect_shape(inputs[1], inputs[0].shape, names[1].c_str());
    for (std::size_t i = 2; i < count; ++i) expect_type(inputs[i], inputs[0], names[i].c_str());
    for (std::size_t i = count; i < names.size(); ++i) expect_type(inputs[i], {DType::f32, {}}, names[i].c_str());
    if (inputs.back().present) expect_type(inputs.back(), inputs[0], "keep");
    ir::Types outputs(count - 1, inputs[0]);
    if (const std::string& low = given.text("low"); low != "none") {
      if (low != "bf16" && low != "f16") fail("'low' must be \"none\", \"bf16\" or \"f16\", got \"{}\"", low);
      outputs.push_back({dtype_of(low), inputs[0].shape});
    }
    return outputs;
  };
  def.no_gradient = "an update is not differentiated";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return aligned_factors(inputs, outputs);
  };
  def.cost = [flops](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, flops);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.elementwise = true;
  def.traits.pads = true;
  return checked(std::move(def));
}

}  // namespace trireme::ops
