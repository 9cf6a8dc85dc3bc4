#include "trireme/ops/optimizer/adaptive_scale.h"

#include "trireme/ops/define.h"
#include "trireme/ops/optimizer/cpu_kernels.h"

namespace trireme::ops {

ir::OpDef adaptive_scale_def() {
  ir::OpDef def;
  def.name = "adaptive_scale";
  for (const char* operand : {"scale", "good", "bad", "finite"})
    def.operands.push_back({.name = operand, .optional = false, .variadic = false, .keep_f32 = true});
  const AdaptiveScale defaults;
  def.attributes = {{"window", defaults.window}, {"low", defaults.low}, {"high", defaults.high}};
  def.infer = [operands = def.operands](std::span<const TensorType> inputs, const ir::Attributes& given) -> ir::Types {
    const TensorType scalar{DType::f32, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i) expect_type(inputs[i], scalar, operands[i].name.c_str());
    if (given.integer("window") < 1) fail("'window' must be at least 1, got {}", given.integer("window"));
    if (!(given.real("low") > 0 && given.real("low") <= given.real("high")))
      fail("'low' and 'high' must be positive and in order, got {} and {}", given.real("low"), given.real("high"));
    return {scalar, scalar, scalar};
  };
  def.no_gradient = "a scale that follows success and failure is not differentiated";
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("-, -, -, - -> -, -, -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 3);
  };
  def.with_precision(ir::Precision::keep);
  def.traits.in_place = {{0, 0}, {1, 1}, {2, 2}};
  on_cpu(def, prepare_adaptive_scale_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
