#include "trireme/ops/norm/batch_norm_parts.h"

#include "trireme/ir/partition.h"
#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"

namespace trireme::ops {
namespace {

using Inputs = std::span<const TensorType>;

ir::OperandSpec channel(const char* name) { return {.name = name, .keep_f32 = true}; }

// Operands of x's shape share its dimensions, the others its channels. Rows are whole: their sums are what these ops
// are about.
ir::Factors part_factors(Inputs inputs, Inputs outputs, const ir::Attributes&) {
  ir::Factors factors;
  const int rank = inputs[0].shape.rank();
  for (int i = 0; i < rank; ++i)
    factors.factors.push_back(
        {"r" + std::to_string(i), i + 1 < rank ? ir::Factor::Kind::whole : ir::Factor::Kind::free});
  const auto side = [&](Inputs types) {
    std::vector<std::vector<int>> dims;
    for (const TensorType& type : types) {
      std::vector<int>& one = dims.emplace_back();
      for (int i = rank - type.shape.rank(); i < rank; ++i) one.push_back(i);
    }
    return dims;
  };
  factors.inputs = side(inputs);
  factors.outputs = side(outputs);
  return factors;
}

ir::OpDef part_def(const char* name, double flops) {
  ir::OpDef def;
  def.name = name;
  def.no_gradient = "graphs are cut after their gradients were made";
  def.factors = part_factors;
  def.cost = [flops](Inputs inputs, Inputs outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = flops * static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  return def;
}

void expect_channels(Inputs inputs, std::size_t first, std::size_t last, const TensorType& expected) {
  for (std::size_t i = first; i < last; ++i) expect_type(inputs[i], expected, "a channel's numbers");
}

TensorType channels_of(const TensorType& x) {
  expect_compute(x, "x");
  if (x.shape.rank() == 0) fail("'x' must have channels, got {}", x.str());
  return {DType::f32, {x.shape.back()}};
}

void expect_rows_attribute(const ir::Attributes& attributes) {
  if (attributes.integer("rows") < 1) fail("'rows' must be at least 1, got {}", attributes.integer("rows"));
}

std::int64_t rows_of(const TensorType& x) { return x.elements() / std::max<std::int64_t>(1, x.shape.back()); }

}  // namespace

ir::OpDef channel_moments_def() {
  ir::OpDef def = part_def("channel_moments", 5);
  def.operands = {{"x"}};
  def.infer = [](Inputs inputs, const ir::Attributes&) -> ir::Types { return ir::Types(3, channels_of(inputs[0])); };
  on_cpu(def, prepare_channel_moments_cpu, batch_norm_grad_workspace);
  return checked(std::move(def));
}

ir::OpDef joint_squares_def() {
  ir::OpDef def = part_def("joint_squares", 4);
  def.operands = {channel("total"), channel("mean"), channel("squares")};
  def.attributes = {{"rows", std::int64_t{1}}, {"all_rows", std::int64_t{1}}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_channels(inputs, 0, 3, channels_of(inputs[0]));
    expect_rows_attribute(attributes);
    if (attributes.integer("all_rows") < attributes.integer("rows")) fail("'all_rows' must not be fewer than 'rows'");
    return {inputs[0]};
  };
  on_cpu(def, prepare_joint_squares_cpu);
  return checked(std::move(def));
}

ir::OpDef batch_norm_given_def() {
  ir::OpDef def = part_def("batch_norm_given", 3);
  def.operands = {{"x"},
                  channel("weight"),
                  channel("bias"),
                  channel("running_mean"),
                  channel("running_var"),
                  channel("total"),
                  channel("squares")};
  def.attributes = {{"rows", std::int64_t{1}}, {"momentum", 0.1}, {"eps", 1e-5}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const TensorType c = channels_of(inputs[0]);
    expect_channels(inputs, 1, 7, c);
    expect_rows_attribute(attributes);
    return {inputs[0], c, c, c, c};
  };
  def.traits.in_place = {{0, 0}, {3, 3}, {4, 4}};
  on_cpu(def, prepare_batch_norm_given_cpu, batch_norm_given_workspace);
  return checked(std::move(def));
}

ir::OpDef batch_norm_sums_def() {
  ir::OpDef def = part_def("batch_norm_sums", 5);
  def.operands = {{"x"}, channel("mean"), channel("rstd"), {"dy"}};
  def.infer = [](Inputs inputs, const ir::Attributes&) -> ir::Types {
    const TensorType c = channels_of(inputs[0]);
    expect_channels(inputs, 1, 3, c);
    expect_type(inputs[3], inputs[0], "dy");
    return {c, c};
  };
  on_cpu(def, prepare_batch_norm_sums_cpu, batch_norm_grad_workspace);
  return checked(std::move(def));
}

ir::OpDef batch_norm_dx_def() {
  ir::OpDef def = part_def("batch_norm_dx", 6);
  def.operands = {{"x"},  channel("weight"),  channel("mean"), channel("rstd"),
                  {"dy"}, channel("dweight"), channel("dbias")};
  def.attributes = {{"rows", std::int64_t{1}}};
  def.infer = [](Inputs inputs, const ir::Attributes& attributes) -> ir::Types {
    const TensorType c = channels_of(inputs[0]);
    expect_channels(inputs, 1, 4, c);
    expect_type(inputs[4], inputs[0], "dy");
    expect_channels(inputs, 5, 7, c);
    expect_rows_attribute(attributes);
    return {inputs[0]};
  };
  def.traits.in_place = {{0, 0}, {0, 4}};
  on_cpu(def, prepare_batch_norm_dx_cpu);
  return checked(std::move(def));
}

namespace {

// Every rank normalises by the statistics of its own rows. The running ones are the mean of the ranks'.
void partition_by_own_rows(ir::PartitionContext& p) {
  std::vector<ir::ValueId> inputs;
  for (std::size_t i = 0; i < 5; ++i) inputs.push_back(p.input(i));
  const auto result = p.add("batch_norm", inputs, p.attributes());
  p.set(0, result[0]);
  p.set_own(1, result[1]);
  p.set_own(2, result[2]);
  const double share = 1.0 / static_cast<double>(p.parts());
  for (const std::size_t i : {3, 4}) p.set(i, p.all_reduce(p.add("scale", {result[i]}, {{"factor", share}}).front()));
}

}  // namespace

void partition_batch_norm(ir::PartitionContext& p) {
  if (p.attributes().text("activation") != "none") fail("a batch norm is cut before an activation is merged into it");
  if (!p.attributes().boolean("training")) {  // every row for itself, and the statistics do not depend on them
    std::vector<ir::ValueId> inputs;
    for (std::size_t i = 0; i < 5; ++i) inputs.push_back(p.input(i));
    const auto result = p.add("batch_norm", inputs, p.attributes());
    for (std::size_t i = 0; i < result.size(); ++i) p.set(i, result[i]);
    return;
  }
  if (p.own_statistics()) return partition_by_own_rows(p);
  // Ranks may have unequal numbers of rows.
  const std::int64_t rows = rows_of(p.type(p.input(0)));
  const std::int64_t all_rows = rows_of(p.whole_input(0));
  const auto moments = p.add("channel_moments", {p.input(0)});
  const ir::ValueId total = p.all_reduce(moments[0]);
  const ir::ValueId squares = p.all_reduce(
      p.add("joint_squares", {total, moments[1], moments[2]}, {{"rows", rows}, {"all_rows", all_rows}}).front());
  const auto result =
      p.add("batch_norm_given", {p.input(0), p.input(1), p.input(2), p.input(3), p.input(4), total, squares},
            {{"rows", all_rows}, {"momentum", p.attributes().real("momentum")}, {"eps", p.attributes().real("eps")}});
  for (std::size_t i = 0; i < result.size(); ++i) p.set(i, result[i]);
}

void partition_batch_norm_grad(ir::PartitionContext& p) {
  if (p.attributes().text("activation") != "none") fail("a batch norm is cut before an activation is merged into it");
  if (p.own_statistics()) {
    std::vector<ir::ValueId> inputs;
    for (std::size_t i = 0; i < p.inputs(); ++i) inputs.push_back(p.input(i));
    const auto result = p.add("batch_norm_grad", inputs, p.attributes());
    for (std::size_t i = 0; i < 3; ++i) p.set(i, result[i], i > 0);
    return;
  }
  const auto own = p.add("batch_norm_sums", {p.input(0), p.input(2), p.input(3), p.input(4)});
  const ir::ValueId dweight = p.all_reduce(own[0]);
  const ir::ValueId dbias = p.all_reduce(own[1]);
  p.set(0, p.add("batch_norm_dx", {p.input(0), p.input(1), p.input(2), p.input(3), p.input(4), dweight, dbias},
                 {{"rows", rows_of(p.whole_input(0))}})
               .front());
  // The parameters' gradients are summed with all the others.
  p.set(1, own[0], true);
  p.set(2, own[1], true);
}

}  // namespace trireme::ops
