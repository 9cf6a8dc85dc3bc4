#include "trireme/ops/quantize/int8_linear.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

const char* const kIntegersNoGradient = "integers are not differentiated";

}  // namespace

ir::OpDef round_to_int8_def() {
  ir::OpDef def;
  def.name = "round_to_int8";
  def.operands = {{"x"}, {.name = "scale", .keep_f32 = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "x");
    expect_type(inputs[1], {DType::f32, {}}, "scale");
    return {{DType::i8, inputs[0].shape}};
  };
  def.no_gradient = kIntegersNoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    std::string x;
    for (int d = 0; d < inputs[0].shape.rank(); ++d) x += fmt::format("d{} ", d);
    if (x.empty()) x = "-";
    return ir::parse_factors(x + ", - -> " + x);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 2);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_round_to_int8_cpu);
  return checked(std::move(def));
}

ir::OpDef largest_magnitude_def() {
  ir::OpDef def;
  def.name = "largest_magnitude";
  def.operands = {{"x"}, {.name = "so_far", .keep_f32 = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "x");
    expect_type(inputs[1], {DType::f32, {}}, "so_far");
    return {inputs[1]};
  };
  def.no_gradient = "it is for what is observed, not trained";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    ir::Factors f;
    f.inputs = {{}, {}};
    f.outputs = {{}};
    f.max_reduced = true;
    for (int d = 0; d < inputs[0].shape.rank(); ++d) {
      f.factors.push_back({"d" + std::to_string(d), ir::Factor::Kind::free});
      f.inputs[0].push_back(d);
    }
    return f;
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 0);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_largest_magnitude_cpu);
  return checked(std::move(def));
}

ir::OpDef int8_linear_def() {
  ir::OpDef def;
  def.name = "int8_linear";
  def.operands = {{"x"},
                  {.name = "codes"},
                  {.name = "scale", .keep_f32 = true},
                  {.name = "x_scale", .keep_f32 = true},
                  {.name = "bias", .optional = true, .keep_f32 = true}};
  def.attributes = {{"bits", std::int64_t{8}},
                    {"group", std::int64_t{0}},
                    {"x_split", std::int64_t{-1}},
                    {"out", std::vector<std::int64_t>()},
                    {"to", std::string("f32")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::i8, "x");
    if (const std::int64_t k = quantized_problem(inputs, attributes).k; k > kMostInt8Terms)
      fail("rows of x must have at most {} elements, got {}: their sums would not fit", kMostInt8Terms, k);
    expect_type(inputs[3], {DType::f32, {}}, "x_scale");
    const DType to = dtype_of(attributes.text("to"));
    expect_compute({to, {}}, "to");
    return {{to, quantized_product(inputs, attributes)}};
  };
  def.no_gradient = kIntegersNoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    return quantized_factors(inputs, attributes);
  };
  def.cost = quantized_cost;
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_int8_linear_cpu, int8_linear_cpu_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
