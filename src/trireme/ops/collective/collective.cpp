#include "trireme/ops/collective/collective.h"

#include "trireme/ir/axes.h"
#include "trireme/ops/define.h"
#include "trireme/ops/whole_factors.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

std::int64_t parts_of(const ir::Attributes& attributes) {
  const std::int64_t parts = attributes.integer("parts");
  if (parts < 1) fail("'parts' must be at least 1, got {}", parts);
  return parts;
}

ir::OpDef collective_def(std::string_view name, std::vector<ir::AttributeSpec> attributes) {
  ir::OpDef def;
  def.name = std::string(name);
  def.operands = {{.name = "xs", .variadic = true}};
  def.attributes = {{"axis", std::string()}, {"parts", std::int64_t{1}}};
  for (ir::AttributeSpec& a : attributes) def.attributes.push_back(std::move(a));
  def.no_gradient = "graphs are cut after their gradients were made";
  def.factors = whole_factors;
  def.cost = [](Inputs inputs, Inputs outputs, const ir::Attributes&) { return one_pass(inputs, outputs, 1); };
  def.with_precision(ir::Precision::follow);
  def.traits.collective = true;
  return def;
}

void expect_alike(Inputs inputs) {
  if (inputs.empty()) fail("expected at least one operand, got none");
  for (const TensorType& type : inputs)
    if (type.dtype != inputs[0].dtype) fail("operands must have one dtype, got {} and {}", inputs[0].str(), type.str());
}

TensorType part_of(TensorType type, std::int64_t parts) {
  if (type.shape.rank() == 0) fail("a scalar has no parts");
  type.shape[0] = part_rows(type.shape[0], parts);
  return type;
}

}  // namespace

std::int64_t part_rows(std::int64_t rows, std::int64_t parts) { return (rows + parts - 1) / parts; }

ir::OpDef all_reduce_def() {
  ir::OpDef def = collective_def(kAllReduce, {{"reduce", std::string("sum")}});
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_alike(inputs);
    parts_of(attributes);
    if (const std::string& reduce = attributes.text("reduce"); reduce != "sum" && reduce != "max")
      fail("'reduce' must be sum or max, got {}", reduce);
    return {inputs.begin(), inputs.end()};
  };
  def.traits.in_place_each = true;
  return checked(std::move(def));
}

ir::OpDef reduce_scatter_def() {
  ir::OpDef def = collective_def(kReduceScatter, {});
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_alike(inputs);
    ir::Types parts;
    for (const TensorType& type : inputs) parts.push_back(part_of(type, parts_of(attributes)));
    return parts;
  };
  return checked(std::move(def));
}

ir::OpDef all_gather_def() {
  ir::OpDef def = collective_def(kAllGather, {{"rows", std::vector<std::int64_t>{}}});
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_alike(inputs);
    const std::vector<std::int64_t>& rows = attributes.integers("rows");
    if (rows.size() != inputs.size()) fail("'rows' must name {} numbers, got {}", inputs.size(), rows.size());
    ir::Types wholes;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      TensorType whole = inputs[i];
      if (whole.shape.rank() == 0) fail("a scalar has no parts");
      if (rows[i] < 0 || part_rows(rows[i], parts_of(attributes)) != whole.shape[0])
        fail("{} rows in {} parts are not parts of {}", rows[i], parts_of(attributes), whole.str());
      whole.shape[0] = rows[i];
      wholes.push_back(whole);
    }
    return wholes;
  };
  return checked(std::move(def));
}

ir::OpDef all_to_all_def() {
  ir::OpDef def = collective_def(kAllToAll, {});
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_alike(inputs);
    for (const TensorType& type : inputs)
      if (type.shape.rank() == 0 || type.shape[0] != parts_of(attributes))
        fail("an operand must have {} rows, one for each rank, got {}", parts_of(attributes), type.str());
    return {inputs.begin(), inputs.end()};
  };
  return checked(std::move(def));
}

ir::OpDef own_rows_def() {
  ir::OpDef def = collective_def(kOwnRows, {});
  def.operands = {{"x"}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    return {part_of(inputs[0], parts_of(attributes))};
  };
  def.cost = [](Inputs, Inputs, const ir::Attributes&) { return ir::Cost{}; };
  def.traits.collective = false;
  def.traits.view = true;
  return checked(std::move(def));
}

}  // namespace trireme::ops
