#include "trireme/ops/random/dropout.h"

#include "trireme/ir/partition.h"
#include "trireme/ops/define.h"
#include "trireme/ops/random/cpu_kernels.h"
#include "trireme/ops/random/window.h"

namespace trireme::ops {

ir::OpDef dropout_def() {
  ir::OpDef def;
  def.name = "dropout";
  def.operands = {{"x"}, {"rng"}, {.name = "places", .variadic = true}};
  def.attributes = {{"p", 0.1}, {"site", std::int64_t{0}}};
  add_window(def.attributes);
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_compute(inputs[0], "x");
    if (inputs[0].shape.rank() < 1) fail("'x' must have a dimension of rows, got {}", inputs[0].str());
    expect_type(inputs[1], {DType::i64, {3}}, "rng");
    for (const TensorType& place : inputs.subspan(2)) expect_type(place, {DType::i64, {}}, "places");
    check_window(attributes, inputs.size() - 2);
    const double p = attributes.real("p");
    if (!(p >= 0 && p < 1)) fail("'p' must be in [0, 1), got {}", p);
    return {inputs[0]};
  };
  def.gradient = [](ir::GradientContext& g) {
    const ir::Attributes same = g.attributes();
    g.set(0, ir::apply1("dropout", {g.grad(), g.input(1)}, same));
  };
  // A shard of the rows has its own first row in its rng; elements within a row are counted from its start, which a
  // shard of a row has to know.
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    ir::Factors factors = aligned_factors(inputs.first(1), inputs.first(1));
    for (std::size_t i = 1; i < factors.factors.size(); ++i) factors.factors[i].kind = ir::Factor::Kind::partitioned;
    factors.factors.front().share = true;
    factors.inputs.push_back({static_cast<int>(factors.factors.size())});
    factors.factors.push_back({"rng", ir::Factor::Kind::whole});
    factors.inputs.resize(inputs.size());
    return factors;
  };
  def.partition = [](ir::PartitionContext& p) {
    std::vector<ir::ValueId> inputs = {p.input(0), p.input(1)};
    ir::Attributes attributes = p.attributes();
    for (const auto& [name, value] : partition_window(p, 0, inputs, 1)) attributes.set(name, value);
    p.set(0, p.add("dropout", inputs, attributes).front());
  };
  // About 40 integer operations of Philox and its bookkeeping per element.
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 40);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.elementwise = true;
  def.traits.pads = true;
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_dropout_cpu);
  return checked(std::move(def));
}

}  // namespace trireme::ops
