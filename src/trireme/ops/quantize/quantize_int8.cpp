#include "trireme/ops/quantize/quantize_int8.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

const char* const kInt8NoGradient = "rounding has no useful derivative";

std::int64_t block_of(const ir::Attributes& attributes) {
  const std::int64_t block = attributes.integer("block");
  if (block < 1) fail("'block' must be at least 1, got {}", block);
  return block;
}

void expect_rows(const TensorType& type, const char* operand) {
  if (type.shape.rank() < 1 || type.shape.back() < 1)
    fail("'{}' must have a last dimension of at least 1, got {}", operand, type.str());
}

// Rows may be cut; a block's elements and its scale stay together.
std::string factors_of(int rank, const char* last) {
  std::string text;
  for (int d = 0; d + 1 < rank; ++d) text += fmt::format("r{} ", d);
  return text + last;
}

ir::Cost int8_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
  return one_pass(inputs, outputs, 2);
}

}  // namespace

TensorType int8_scales(const TensorType& x, std::int64_t block) {
  Shape shape = x.shape;
  shape[shape.rank() - 1] = (x.shape.back() + block - 1) / block;
  return {DType::f32, shape};
}

ir::OpDef quantize_int8_def() {
  ir::OpDef def;
  def.name = "quantize_int8";
  def.operands = {{"x"}};
  def.attributes = {{"block", kInt8Block}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(inputs[0], "x");
    expect_rows(inputs[0], "x");
    return {{DType::i8, inputs[0].shape}, int8_scales(inputs[0], block_of(attributes))};
  };
  def.no_gradient = kInt8NoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string x = factors_of(inputs[0].shape.rank(), "d!");
    return ir::parse_factors(x + " -> " + x + ", " + factors_of(inputs[0].shape.rank(), "n!"));
  };
  def.cost = int8_cost;
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_quantize_int8_cpu);
  return checked(std::move(def));
}

ir::OpDef dequantize_int8_def() {
  ir::OpDef def;
  def.name = "dequantize_int8";
  def.operands = {{"q"}, {.name = "scale", .keep_f32 = true}};
  def.attributes = {{"block", kInt8Block}, {"to", std::string("f32")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::i8, "q");
    expect_rows(inputs[0], "q");
    expect_type(inputs[1], int8_scales(inputs[0], block_of(attributes)), "scale");
    const TensorType x{dtype_of(attributes.text("to")), inputs[0].shape};
    expect_compute(x, "to");
    return {x};
  };
  def.no_gradient = kInt8NoGradient;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string x = factors_of(inputs[0].shape.rank(), "d!");
    return ir::parse_factors(x + ", " + factors_of(inputs[0].shape.rank(), "n!") + " -> " + x);
  };
  def.cost = int8_cost;
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_dequantize_int8_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
