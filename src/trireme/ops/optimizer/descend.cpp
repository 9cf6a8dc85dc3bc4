#include "trireme/ops/optimizer/descend.h"

#include "trireme/ops/define.h"

namespace trireme::ops {

ir::OpDef descend_def() {
  ir::OpDef def;
  def.name = "descend";
  def.operands = {{.name = "param", .keep_f32 = true},
                  {"direction"},
                  {.name = "variance", .optional = true, .keep_f32 = true},
                  {.name = "lr", .keep_f32 = true},
                  {.name = "step", .optional = true, .keep_f32 = true},
                  {.name = "finite", .keep_f32 = true},
                  {.name = "keep", .optional = true, .keep_f32 = true}};
  def.attributes = {
      {"beta1", 0.0}, {"variance_scale", 1.0}, {"eps", 1e-8}, {"weight_decay", 0.0}, {"low", std::string("none")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& given) -> ir::Types {
    const TensorType scalar{DType::f32, {}};
    expect_dtype(inputs[0], DType::f32, "param");
    expect_compute(inputs[1], "direction");
    expect_shape(inputs[1], inputs[0].shape, "direction");
    if (inputs[2].present) expect_type(inputs[2], inputs[0], "variance");
    expect_type(inputs[3], scalar, "lr");
    if (inputs[4].present) expect_type(inputs[4], scalar, "step");
    expect_type(inputs[5], scalar, "finite");
    if (inputs[6].present) expect_type(inputs[6], inputs[0], "keep");
    ir::Types outputs = {inputs[0]};
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
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 6);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.elementwise = true;
  def.traits.pads = true;
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_descend_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
