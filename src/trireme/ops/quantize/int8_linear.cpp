#include "trireme/ops/quantize/int8_linear.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

const char* const kIntegersNoGradient = "integers are not differentiated";

std::string named(const char* name, int from, int to, const char* mark = "") {
  std::string text;
  for (int d = from; d < to; ++d) text += fmt::format("{}{}{} ", name, d, mark);
  return text.empty() ? "-" : text;
}

int rows_end(const TensorType& x, const ir::Attributes& attributes) {
  const std::int64_t split = attributes.integer("x_split");
  return split == -1 ? x.shape.rank() - 1 : static_cast<int>(split);
}

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
    const std::string x = named("d", 0, inputs[0].shape.rank());
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
    const QuantizedProblem p = quantized_problem(inputs, attributes);
    if (p.k > kMostInt8Terms)
      fail("rows of x must have at most {} elements, got {}: their sums would not fit", kMostInt8Terms, p.k);
    expect_codes(inputs[1], inputs[2], p.format, p.k);
    expect_type(inputs[3], {DType::f32, {}}, "x_scale");
    const Shape out(attributes.integers("out"));
    if (inputs[1].shape[0] != p.n)
      fail("'out' must have the {} rows of the codes, got {}", inputs[1].shape[0], out.str());
    if (inputs[4].present) expect_type(inputs[4], {DType::f32, out}, "bias");
    const DType to = dtype_of(attributes.text("to"));
    expect_compute({to, {}}, "to");
    return {{to, inputs[0].shape.slice(0, rows_end(inputs[0], attributes)) + out}};
  };
  def.no_gradient = kIntegersNoGradient;
  // As of quantized_linear: rows of x may be cut, a matrix of codes stays whole.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    const int split = rows_end(inputs[0], attributes);
    const auto out = static_cast<int>(attributes.integers("out").size());
    const std::string rows = split == 0 ? "" : named("r", 0, split);
    const std::string columns = named("o", 0, out, "!");
    return ir::parse_factors(rows + named("k", split, inputs[0].shape.rank(), "!") + ", n! c!, n! g!, -, " +
                             (inputs[4].present ? columns : "-") + " -> " + rows + columns);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                const ir::Attributes& attributes) {
    const QuantizedProblem p = quantized_problem(inputs, attributes);
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    return cost;
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_int8_linear_cpu, int8_linear_cpu_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
