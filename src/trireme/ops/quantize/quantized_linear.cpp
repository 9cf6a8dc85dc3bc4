#include "trireme/ops/quantize/quantized_linear.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

const char* const kStoredNoGradient = "codes are not differentiated";

int split_of(const TensorType& x, const ir::Attributes& attributes) {
  const std::int64_t given = attributes.integer("x_split");
  const std::int64_t split = given == -1 ? x.shape.rank() - 1 : given;
  if (split < 0 || split >= x.shape.rank())
    fail("'x_split' must be -1 or from 0 to {}, got {} for {}", x.shape.rank() - 1, given, x.str());
  return static_cast<int>(split);
}

std::int64_t width_of(const ir::Attributes& attributes) {
  const std::int64_t width = attributes.integer("width");
  if (width < 1) fail("'width' must be at least 1, got {}", width);
  return width;
}

DType target_of(const ir::Attributes& attributes) {
  const DType to = dtype_of(attributes.text("to"));
  expect_compute({to, {}}, "to");
  return to;
}

std::string dims(const char* name, int from, int to, const char* mark = "") {
  std::string text;
  for (int d = from; d < to; ++d) text += fmt::format("{}{}{} ", name, d, mark);
  return text;
}

}  // namespace

void expect_codes(const TensorType& codes, const TensorType& scale, const CodeFormat& format, std::int64_t k) {
  if (const std::string problem = format.problem(k); !problem.empty()) fail("{}", problem);
  if (codes.shape.rank() != 2) fail("'codes' must have two dimensions, got {}", codes.str());
  expect_type(codes, format.codes(codes.shape[0], k), "codes");
  expect_type(scale, format.scales(codes.shape[0], k), "scale");
}

QuantizedProblem quantized_problem(std::span<const TensorType> inputs, const ir::Attributes& attributes) {
  QuantizedProblem p;
  p.format = code_format(attributes);
  const Shape& x = inputs[0].shape;
  const int split = split_of(inputs[0], attributes);
  p.m = x.slice(0, split).elements();
  p.k = x.slice(split, x.rank()).elements();
  p.n = Shape(attributes.integers("out")).elements();
  return p;
}

Shape quantized_product(std::span<const TensorType> inputs, const ir::Attributes& attributes) {
  const QuantizedProblem p = quantized_problem(inputs, attributes);
  expect_codes(inputs[1], inputs[2], p.format, p.k);
  const Shape out(attributes.integers("out"));
  if (inputs[1].shape[0] != p.n)
    fail("'out' must have the {} rows of the codes, got {}", inputs[1].shape[0], out.str());
  if (inputs.back().present) expect_type(inputs.back(), {DType::f32, out}, "bias");
  return inputs[0].shape.slice(0, split_of(inputs[0], attributes)) + out;
}

// Rows of x may be sharded; a matrix of codes stays whole.
ir::Factors quantized_factors(std::span<const TensorType> inputs, const ir::Attributes& attributes) {
  const int split = split_of(inputs[0], attributes);
  const std::string rows = dims("r", 0, split);
  const std::string columns = dims("o", 0, static_cast<int>(attributes.integers("out").size()), "!");
  std::string text = rows + dims("k", split, inputs[0].shape.rank(), "!") + ", n! c!, n! g!, ";
  for (std::size_t scalar = 3; scalar + 1 < inputs.size(); ++scalar) text += "-, ";
  return ir::parse_factors(text + (inputs.back().present ? columns : "-") + " -> " + rows + columns);
}

ir::Cost quantized_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                        const ir::Attributes& attributes) {
  const QuantizedProblem p = quantized_problem(inputs, attributes);
  ir::Cost cost = one_pass(inputs, outputs, 0);
  cost.flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return cost;
}

ir::OpDef quantized_linear_def() {
  ir::OpDef def;
  def.name = "quantized_linear";
  def.operands = {{"x"},
                  {.name = "codes"},
                  {.name = "scale", .keep_f32 = true},
                  {.name = "bias", .optional = true, .keep_f32 = true}};
  def.attributes = {{"bits", std::int64_t{8}},
                    {"group", std::int64_t{0}},
                    {"x_split", std::int64_t{-1}},
                    {"out", std::vector<std::int64_t>()}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(inputs[0], "x");
    return {{inputs[0].dtype, quantized_product(inputs, attributes)}};
  };
  def.no_gradient = kStoredNoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    return quantized_factors(inputs, attributes);
  };
  def.cost = quantized_cost;
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_quantized_linear_cpu, quantized_linear_cpu_workspace);
  return checked(std::move(def));
}

ir::OpDef quantized_embedding_def() {
  ir::OpDef def;
  def.name = "quantized_embedding";
  def.operands = {{"tokens"}, {"codes"}, {.name = "scale", .keep_f32 = true}};
  def.attributes = {
      {"bits", std::int64_t{8}}, {"group", std::int64_t{0}}, {"width", std::int64_t{0}}, {"to", std::string("f32")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    const std::int64_t width = width_of(attributes);
    expect_codes(inputs[1], inputs[2], code_format(attributes), width);
    return {{target_of(attributes), inputs[0].shape + Shape{width}}};
  };
  def.no_gradient = kStoredNoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = dims("r", 0, inputs[0].shape.rank());
    return ir::parse_factors((rows.empty() ? "-" : rows) + ", n! c!, n! g! -> " + rows + "d!");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    // Only the rows that are asked for are read.
    const auto elements = static_cast<double>(outputs[0].elements());
    return ir::Cost{elements, static_cast<double>(inputs[0].bytes()) + elements,
                    static_cast<double>(outputs[0].bytes())};
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_quantized_embedding_cpu);
  return checked(std::move(def));
}

ir::OpDef dequantize_rows_def() {
  ir::OpDef def;
  def.name = "dequantize_rows";
  def.operands = {{"codes"}, {.name = "scale", .keep_f32 = true}};
  def.attributes = {
      {"bits", std::int64_t{8}}, {"group", std::int64_t{0}}, {"width", std::int64_t{0}}, {"to", std::string("f32")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    const std::int64_t width = width_of(attributes);
    expect_codes(inputs[0], inputs[1], code_format(attributes), width);
    return {{target_of(attributes), {inputs[0].shape[0], width}}};
  };
  def.no_gradient = kStoredNoGradient;
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("n c!, n g! -> n k!");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 1);
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_dequantize_rows_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
