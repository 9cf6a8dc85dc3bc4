#include "trireme/ops/quantize/fp8.h"

#include <cmath>

#include "trireme/ops/define.h"

namespace trireme::ops {

std::uint8_t Fp8Format::encode(float x) const {
  if (std::isnan(x)) return 0x7f;
  const float a = std::min(std::abs(x), most);
  int exponent = 0;
  std::frexp(a, &exponent);                                         // a < 2^exponent
  exponent = std::max(a == 0 ? 1 - bias : exponent - 1, 1 - bias);  // subnormal below
  const int one = 1 << fraction;
  const auto n = static_cast<int>(std::nearbyint(std::ldexp(a, fraction - exponent)));
  const int code = n < one ? n : ((exponent + bias) << fraction) + n - one;
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

std::array<float, 256> Fp8Format::values() const {
  std::array<float, 256> all{};
  const int one = 1 << fraction;
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code & 0x7f) >> fraction, n = code & (one - 1);
    float v = exponent == 0 ? std::ldexp(static_cast<float>(n), 1 - bias - fraction)
                            : std::ldexp(static_cast<float>(one + n), exponent - bias - fraction);
    if (v > most) v = std::isinf(most) || fraction == 3 || n != 0 ? NAN : INFINITY;
    all[static_cast<std::size_t>(code)] = (code & 0x80) != 0 ? -v : v;
  }
  return all;
}

const Fp8Format& fp8_format(const std::string& name) {
  if (name == "e4m3") return kE4M3;
  if (name == "e5m2") return kE5M2;
  fail("'format' must be \"e4m3\" or \"e5m2\", got \"{}\"", name);
}

Fp8Matrix::Fp8Matrix(const TensorType& x, const ir::Attributes& attributes) {
  const std::int64_t given = attributes.integer("split");
  split = static_cast<int>(given == -1 ? x.shape.rank() - 1 : given);
  if (split < 0 || split > x.shape.rank())
    fail("'split' must be -1 or from 0 to {}, the rank of x; got {}", x.shape.rank(), given);
  rows = x.shape.slice(0, split).elements();
  columns = x.shape.slice(split, x.shape.rank()).elements();
  const std::string& form = attributes.text("form");
  as_rows = form == "rows" || form == "both";
  as_columns = form == "columns" || form == "both";
  if (!as_rows && !as_columns) fail("'form' must be \"rows\", \"columns\" or \"both\", got \"{}\"", form);
}

namespace {

const char* const kNoGradient = "it is made by the pass fp8, after gradients are taken";

std::vector<int> numbers(int from, int to) {
  std::vector<int> all;
  for (int i = from; i < to; ++i) all.push_back(i);
  return all;
}

ir::Factors dims_of(const TensorType& x) {
  ir::Factors f;
  for (int i = 0; i < x.shape.rank(); ++i) f.factors.push_back({"d" + std::to_string(i), ir::Factor::Kind::free});
  return f;
}

}  // namespace

ir::OpDef fp8_scale_def() {
  ir::OpDef def;
  def.name = "fp8_scale";
  def.operands = {{"x"}};
  def.attributes = {{"format", std::string("e4m3")}};
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(in[0], "x");
    fp8_format(attributes.text("format"));
    return {{DType::f32, {}}};
  };
  def.no_gradient = kNoGradient;
  def.factors = [](std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes&) {
    ir::Factors f = dims_of(in[0]);
    f.inputs = {numbers(0, in[0].shape.rank())};
    f.outputs = {{}};
    f.max_reduced = true;
    return f;
  };
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes&) {
    return one_pass(in, out, 0);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_fp8_scale_cpu);
  return checked(std::move(def));
}

ir::OpDef quantize_fp8_def() {
  ir::OpDef def;
  def.name = "quantize_fp8";
  def.operands = {{"x"}, {.name = "scale", .keep_f32 = true}};
  def.attributes = {{"format", std::string("e4m3")}, {"split", std::int64_t{-1}}, {"form", std::string("rows")}};
  def.infer = [](std::span<const TensorType> in, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(in[0], "x");
    expect_type(in[1], {DType::f32, {}}, "scale");
    fp8_format(attributes.text("format"));
    const Fp8Matrix m(in[0], attributes);
    const int rank = in[0].shape.rank();
    ir::Types out;
    if (m.as_rows) out.push_back({DType::u8, in[0].shape});
    if (m.as_columns) out.push_back({DType::u8, in[0].shape.slice(m.split, rank) + in[0].shape.slice(0, m.split)});
    return out;
  };
  def.no_gradient = kNoGradient;
  def.factors = [](std::span<const TensorType> in, std::span<const TensorType>, const ir::Attributes& attributes) {
    const Fp8Matrix m(in[0], attributes);
    const int rank = in[0].shape.rank();
    ir::Factors f = dims_of(in[0]);
    f.inputs = {numbers(0, rank), {}};
    if (m.as_rows) f.outputs.push_back(numbers(0, rank));
    if (m.as_columns) {
      f.outputs.push_back(numbers(m.split, rank));
      for (const int i : numbers(0, m.split)) f.outputs.back().push_back(i);
    }
    return f;
  };
  def.cost = [](std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attributes&) {
    return one_pass(in, out, 1);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_quantize_fp8_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
