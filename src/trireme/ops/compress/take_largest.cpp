#include "trireme/ops/compress/take_largest.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

ir::Cost largest_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
  return one_pass(inputs, outputs, 8);
}

}  // namespace

TakenLayout::TakenLayout(std::int64_t elements, std::int64_t count)
    : segments((elements + kSegment - 1) / kSegment),
      values(4 * segments),
      indices(values + 4 * count),
      bytes((indices + 2 * count + 3) / 4 * 4) {
  if (count < 1 || count > elements) fail("'count' must be from 1 to {}, got {}", elements, count);
}

ir::OpDef take_largest_def() {
  ir::OpDef def;
  def.name = "take_largest";
  def.operands = {{"x"},
                  {.name = "velocity", .keep_f32 = true},
                  {.name = "waiting", .optional = true, .keep_f32 = true},
                  {.name = "times", .optional = true, .keep_f32 = true}};
  def.attributes = {{"decay", 0.9}, {"count", std::int64_t{1}}, {"mask", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_compute(inputs[0], "x");
    expect_dtype(inputs[1], DType::f32, "velocity");
    if (inputs[1].elements() != inputs[0].elements())
      fail("'velocity' must have {} elements, got {}", inputs[0].elements(), inputs[1].str());
    if (inputs[2].present) expect_type(inputs[2], inputs[1], "waiting");
    if (inputs[3].present) expect_type(inputs[3], {DType::f32, {}}, "times");
    const TakenLayout layout(inputs[0].elements(), a.integer("count"));
    ir::Types outputs = {{DType::u8, {1, layout.bytes}}, inputs[1]};
    if (inputs[2].present) outputs.push_back(inputs[1]);
    return outputs;
  };
  def.no_gradient = "it belongs to updates, which are not differentiated";
  def.factors = whole_factors;
  def.cost = largest_cost;
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{1, 1}, {2, 2}};
  on_cpu(def, prepare_take_largest_cpu);
  return checked(std::move(def));
}

ir::OpDef add_taken_def() {
  ir::OpDef def;
  def.name = "add_taken";
  def.operands = {{"taken"}};
  def.attributes = {{"count", std::int64_t{1}}, {"shape", std::vector<std::int64_t>{}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_dtype(inputs[0], DType::u8, "taken");
    const TensorType y{DType::f32, Shape(a.integers("shape"))};
    const TakenLayout layout(y.elements(), a.integer("count"));
    if (inputs[0].shape.rank() != 2 || inputs[0].shape[1] != layout.bytes)
      fail("'taken' must be [parts,{}], got {}", layout.bytes, inputs[0].str());
    return {y};
  };
  def.no_gradient = "it belongs to updates, which are not differentiated";
  def.factors = whole_factors;
  def.cost = largest_cost;
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_add_taken_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
