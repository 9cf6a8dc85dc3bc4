#include "trireme/ops/compress/weighted_sum.h"

#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {

ir::OpDef weighted_sum_def() {
  ir::OpDef def;
  def.name = "weighted_sum";
  def.operands = {{.name = "a", .optional = true, .keep_f32 = true},
                  {"b"},
                  {.name = "times", .optional = true, .keep_f32 = true},
                  {.name = "over", .optional = true, .keep_f32 = true}};
  def.attributes = {{"a_weight", 1.0}, {"b_weight", 1.0}, {"shape", std::vector<std::int64_t>{}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& a) -> ir::Types {
    const TensorType y{DType::f32, Shape(a.integers("shape"))};
    expect_compute(inputs[1], "b");
    if (inputs[0].present) expect_dtype(inputs[0], DType::f32, "a");
    for (std::size_t i = 0; i < 2; ++i)
      if (inputs[i].present && inputs[i].elements() != y.elements())
        fail("'{}' must have the {} elements of {}, got {}", i == 0 ? "a" : "b", y.elements(), y.str(),
             inputs[i].str());
    if (inputs[2].present) expect_type(inputs[2], {DType::f32, {}}, "times");
    if (inputs[3].present) expect_type(inputs[3], {DType::f32, {}}, "over");
    return {y};
  };
  def.no_gradient = "it belongs to updates, which are not differentiated";
  def.factors = whole_factors;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 3);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_weighted_sum_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
