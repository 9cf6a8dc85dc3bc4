#include "trireme/ops/loss/cross_entropy.h"

#include "trireme/ops/loss/loss.h"

namespace trireme::ops {
namespace {

TensorType lse_type(const TensorType& logits) { return {DType::f32, target_type(logits).shape}; }

}  // namespace

ir::OpDef cross_entropy_def() {
  ir::OpDef def;
  def.name = "cross_entropy";
  def.operands = {{"logits"}, {"targets"}};
  def.attributes = {{"scale", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_logits(inputs[0], "logits");
    expect_type(inputs[1], target_type(inputs[0]), "targets");
    return {kLossType, lse_type(inputs[0])};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1)) fail("cross_entropy has no gradient for its output lse");
    g.set(0, ir::apply1("cross_entropy_grad", {g.input(0), g.input(1), g.output(1), g.grad(0)},
                        {{"scale", g.attributes().real("scale")}}));
  };
  def.index = {1, classes_of_logits};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const int rank = inputs[1].shape.rank();
    const std::string rows = row_factors(rank);
    return ir::parse_factors(row_factors(rank, "v!") + ", " + rows + " -> -, " + rows);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 10 * static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_cross_entropy_cpu, cross_entropy_workspace_cpu);
  return checked(def);
}

ir::OpDef cross_entropy_grad_def() {
  ir::OpDef def;
  def.name = "cross_entropy_grad";
  def.operands = {{"logits"}, {"targets"}, {.name = "lse", .keep_f32 = true}, {.name = "dloss", .keep_f32 = true}};
  def.attributes = {{"scale", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_logits(inputs[0], "logits");
    expect_type(inputs[1], target_type(inputs[0]), "targets");
    expect_type(inputs[2], lse_type(inputs[0]), "lse");
    expect_type(inputs[3], kLossType, "dloss");
    return {inputs[0]};
  };
  def.no_gradient = kLossIsLast;
  def.index = {1, classes_of_logits};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const int rank = inputs[1].shape.rank();
    const std::string rows = row_factors(rank);
    const std::string logits = row_factors(rank, "v!");
    return ir::parse_factors(logits + ", " + rows + ", " + rows + ", - -> " + logits);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 8);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}};
  on_cpu(def, prepare_cross_entropy_grad_cpu);
  return checked(def);
}

}  // namespace trireme::ops
