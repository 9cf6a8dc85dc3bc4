#include "trireme/ops/compress/keep_largest.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

const char* const kOfUpdates = "it belongs to updates, which are not differentiated";

}  // namespace

ir::OpDef keep_largest_def() {
  ir::OpDef def;
  def.name = "keep_largest";
  def.operands = {{.name = "x", .keep_f32 = true},
                  {.name = "among", .optional = true, .keep_f32 = true},
                  {.name = "fraction", .optional = true, .keep_f32 = true}};
  def.attributes = {{"magnitude", true}, {"keep", std::int64_t{0}}, {"of", std::int64_t{0}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_dtype(inputs[0], DType::f32, "x");
    if (inputs[1].present) expect_type(inputs[1], inputs[0], "among");
    if (inputs[2].present) expect_type(inputs[2], {DType::f32, {}}, "fraction");
    const std::int64_t of = a.integer("of");
    if (of == 0 && !inputs[2].present) fail("'fraction' or attribute 'of' must be given");
    if (of != 0 && (of < 0 || a.integer("keep") < 1 || a.integer("keep") > of))
      fail("'keep' of 'of' must be 1 to 'of', got {} of {}", a.integer("keep"), of);
    if (of != 0 && (inputs[0].shape.rank() == 0 || inputs[0].elements() % of != 0))
      fail("'x' must have a multiple of {} elements, got {}", of, inputs[0].str());
    return {inputs[0]};
  };
  def.no_gradient = kOfUpdates;
  // What is kept depends on all elements, or on those of a row.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& a) {
    const Shape& shape = inputs[0].shape;
    const bool rows = a.integer("of") > 0 && shape.rank() > 1 && shape.elements(1, shape.rank()) % a.integer("of") == 0;
    ir::Factors factors;
    std::vector<int> dims;
    for (int i = 0; i < shape.rank(); ++i) {
      dims.push_back(i);
      // `among` is zero where there is padding, and nothing of it is kept; without it as much is kept there as
      // elsewhere.
      factors.factors.push_back({.name = "d" + std::to_string(i),
                                 .kind = rows && i == 0 ? ir::Factor::Kind::free : ir::Factor::Kind::whole,
                                 .exact = !inputs[1].present});
    }
    factors.inputs = {dims, inputs[1].present ? dims : std::vector<int>{}, {}};
    factors.outputs = {dims};
    return factors;
  };
  def.traits.pads = true;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 8);
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_keep_largest_cpu, keep_largest_workspace);
  return checked(std::move(def));
}

ir::OpDef ramp_def() {
  ir::OpDef def;
  def.name = "ramp";
  def.operands = {{.name = "count", .keep_f32 = true}};
  def.attributes = {{"kind", std::string("cubic")}, {"to", 0.5}, {"steps", std::int64_t{1}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    expect_type(inputs[0], {DType::f32, {}}, "count");
    if (const std::string& kind = a.text("kind"); kind != "cubic" && kind != "geometric")
      fail("'kind' must be \"cubic\" or \"geometric\", got \"{}\"", kind);
    if (a.integer("steps") < 1) fail("'steps' must be at least 1, got {}", a.integer("steps"));
    return {inputs[0]};
  };
  def.no_gradient = kOfUpdates;
  def.factors = [](std::span<const TensorType>, std::span<const TensorType>, const ir::Attributes&) {
    return ir::parse_factors("- -> -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 8);
  };
  def.with_precision(ir::Precision::keep);
  on_cpu(def, prepare_ramp_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
