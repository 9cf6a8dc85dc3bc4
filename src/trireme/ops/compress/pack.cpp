#include "trireme/ops/compress/pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

constexpr std::int64_t kLargestBlock = 4096;     // a kernel holds one on its stack
constexpr std::int64_t kLargestSignBlock = 128;  // 7 bits of index

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

PackLayout::Code code_of(const std::string& name) {
  if (name == "bf16") return PackLayout::Code::bf16;
  if (name == "int8") return PackLayout::Code::int8;
  if (name == "sign") return PackLayout::Code::sign;
  fail("'code' must be \"bf16\", \"int8\" or \"sign\", got \"{}\"", name);
}

ir::Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
  return one_pass(inputs, outputs, 6);
}

void expect_scalar(const TensorType& type, const char* operand) {
  if (type.present) expect_type(type, {DType::f32, {}}, operand);
}

}  // namespace

PackLayout::PackLayout(const std::string& name, std::int64_t elements, std::int64_t parts, std::int64_t per_block)
    : code(code_of(name)), block(per_block) {
  if (parts < 1) fail("'parts' must be at least 1, got {}", parts);
  if (block < 8 || block > kLargestBlock || block % 8 != 0)
    fail("'block' must be a multiple of 8 from 8 to {}, got {}", kLargestBlock, block);
  if (code == Code::sign && block > kLargestSignBlock)
    fail("'block' must be at most {} for signs, got {}", kLargestSignBlock, block);
  chunk = round_up((elements + parts - 1) / parts, 8);
  blocks = (chunk + block - 1) / block;
  scales = code == Code::sign ? 4 : 0;
  apart = scales + round_up(blocks, 4);
  codes = code == Code::bf16 ? 0 : code == Code::sign ? apart + 2 * blocks : 4 * blocks;
  const std::int64_t code_bytes = code == Code::bf16 ? 2 * chunk : code == Code::int8 ? chunk : chunk / 8;
  bytes = round_up(codes + code_bytes, 4);
}

namespace {
constexpr std::uint32_t kFraction = 21;              // bits of a float's fraction that go
constexpr std::uint32_t kBase = (127U - 44U) << 2U;  // the exponent and fraction of the smallest, less one
constexpr std::uint8_t kNoNumber = 255;
}  // namespace

std::uint8_t ByteFloat::encode(float magnitude) {
  if (!std::isfinite(magnitude)) return kNoNumber;
  const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(magnitude) + (1U << (kFraction - 1))) >> kFraction;
  return rounded <= kBase ? 0 : static_cast<std::uint8_t>(std::min<std::uint32_t>(rounded - kBase, kNoNumber - 1U));
}

float ByteFloat::decode(std::uint8_t code) {
  if (code == 0) return 0.0F;
  if (code == kNoNumber) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>((code + kBase) << kFraction);
}

ir::OpDef pack_def() {
  ir::OpDef def;
  def.name = "pack";
  def.operands = {{"x"},
                  {.name = "carry", .optional = true, .keep_f32 = true},
                  {.name = "divisor", .optional = true, .keep_f32 = true}};
  def.attributes = {{"code", std::string("int8")}, {"block", std::int64_t{256}}, {"parts", std::int64_t{1}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_compute(inputs[0], "x");
    expect_scalar(inputs[2], "divisor");
    const PackLayout layout(a.text("code"), inputs[0].elements(), a.integer("parts"), a.integer("block"));
    ir::Types outputs = {{DType::u8, {a.integer("parts"), layout.bytes}}};
    if (inputs[1].present) {
      expect_dtype(inputs[1], DType::f32, "carry");
      if (inputs[1].elements() != inputs[0].elements())
        fail("'carry' must have {} elements, got {}", inputs[0].elements(), inputs[1].str());
      outputs.push_back(inputs[1]);
    }
    return outputs;
  };
  def.no_gradient = "rounding has no useful derivative";
  def.factors = whole_factors;
  def.cost = cost;
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{1, 1}};
  on_cpu(def, prepare_pack_cpu);
  return checked(std::move(def));
}

ir::OpDef unpack_def() {
  ir::OpDef def;
  def.name = "unpack";
  def.operands = {{"packed"}, {.name = "factor", .optional = true, .keep_f32 = true}};
  def.attributes = {{"code", std::string("int8")},
                    {"block", std::int64_t{256}},
                    {"shape", std::vector<std::int64_t>{}},
                    {"dtype", std::string("f32")},
                    {"sum", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_dtype(inputs[0], DType::u8, "packed");
    expect_scalar(inputs[1], "factor");
    const TensorType y{dtype_of(a.text("dtype")), Shape(a.integers("shape"))};
    expect_compute(y, "dtype");
    if (inputs[0].shape.rank() != 2) fail("'packed' must be [parts,bytes], got {}", inputs[0].str());
    const bool sum = a.boolean("sum");
    if (sum && y.elements() % 8 != 0) fail("a sum must have a multiple of 8 elements, got {}", y.str());
    const PackLayout layout(a.text("code"), y.elements(), sum ? 1 : inputs[0].shape[0], a.integer("block"));
    if (layout.bytes != inputs[0].shape[1])
      fail("'packed' must have {} bytes in a part for {}, got {}", layout.bytes, y.str(), inputs[0].str());
    return {y};
  };
  def.no_gradient = "rounding has no useful derivative";
  def.factors = whole_factors;
  def.cost = cost;
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_unpack_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
