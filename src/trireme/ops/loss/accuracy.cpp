#include "trireme/ops/loss/accuracy.h"

#include "trireme/ops/loss/loss.h"

namespace trireme::ops {

ir::OpDef accuracy_def() {
  ir::OpDef def;
  def.name = "accuracy";
  def.operands = {{"logits"}, {"targets"}};
  def.attributes = {{"scale", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_logits(inputs[0], "logits");
    expect_type(inputs[1], target_type(inputs[0]), "targets");
    return {kLossType};
  };
  def.no_gradient = "it counts";
  def.index = {1, classes_of_logits};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const int rank = inputs[1].shape.rank();
    return ir::parse_factors(row_factors(rank, "v!") + ", " + row_factors(rank) + " -> -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_accuracy_cpu, accuracy_workspace_cpu);
  return checked(def);
}

}  // namespace trireme::ops
