#include "trireme/ops/optimizer/clip.h"

#include "trireme/ops/define.h"
#include "trireme/ops/optimizer/cpu_kernels.h"

namespace trireme::ops {

namespace {

ir::OpDef sum_of_squares_def(std::string name) {
  ir::OpDef def;
  def.name = std::move(name);
  def.no_gradient = "a gradient's norm is not differentiated";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    ir::Factors factors = aligned_factors(inputs.first(1), {});
    if (inputs.size() > 1) factors.inputs.emplace_back();
    factors.outputs.emplace_back();
    return factors;
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    return ir::Cost{2.0 * static_cast<double>(inputs[0].elements()), static_cast<double>(inputs[0].bytes()), 4};
  };
  def.with_precision(ir::Precision::follow);
  def.traits.pads = true;
  on_cpu(def, prepare_sum_squares_cpu, sum_squares_workspace);
  return def;
}

}  // namespace

ir::OpDef sum_squares_def() {
  ir::OpDef def = sum_of_squares_def("sum_squares");
  def.operands = {{"x"}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "x");
    return {{DType::f32, {}}};
  };
  return checked(std::move(def));
}

ir::OpDef sum_squares_part_def() {
  ir::OpDef def = sum_of_squares_def("sum_squares_part");
  def.operands = {{"x"}, {.name = "before", .optional = true}};
  def.attributes = {{"last", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(inputs[0], "x");
    if (inputs[1].present) expect_type(inputs[1], {DType::f64, {}}, "before");
    return {{attributes.boolean("last") ? DType::f32 : DType::f64, {}}};
  };
  return checked(std::move(def));
}

ir::OpDef clip_scale_def() {
  ir::OpDef def;
  def.name = "clip_scale";
  def.operands = {{.name = "total", .keep_f32 = true},
                  {.name = "loss", .keep_f32 = true},
                  {.name = "unit", .optional = true, .keep_f32 = true}};
  def.attributes = {{"max_norm", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const TensorType scalar{DType::f32, {}};
    expect_type(inputs[0], scalar, "total");
    expect_type(inputs[1], scalar, "loss");
    if (inputs[2].present) expect_type(inputs[2], scalar, "unit");
    if (attributes.real("max_norm") < 0) fail("'max_norm' must not be negative, got {}", attributes.real("max_norm"));
    return {scalar, scalar, scalar};
  };
  def.no_gradient = "a gradient's norm is not differentiated";
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("-, -, - -> -, -, -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 3);
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_clip_scale_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
