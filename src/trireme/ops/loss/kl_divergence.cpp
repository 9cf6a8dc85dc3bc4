#include "trireme/ops/loss/kl_divergence.h"

#include "trireme/ops/loss/loss.h"

namespace trireme::ops {
namespace {

void check_operands(std::span<const TensorType> inputs, const ir::Attributes& attributes) {
  expect_logits(inputs[0], "student_logits");
  expect_type(inputs[1], inputs[0], "teacher_logits");
  if (!(attributes.real("temperature") > 0))
    fail("'temperature' must be positive, got {}", attributes.real("temperature"));
}

}  // namespace

ir::OpDef kl_divergence_def() {
  ir::OpDef def;
  def.name = "kl_divergence";
  def.operands = {{"student_logits"}, {"teacher_logits"}};
  def.attributes = {{"scale", 1.0}, {"temperature", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    check_operands(inputs, attributes);
    return {kLossType};
  };
  def.gradient = [](ir::GradientContext& g) {
    g.set(0,
          ir::apply1("kl_divergence_grad", {g.input(0), g.input(1), g.grad()},
                     {{"scale", g.attributes().real("scale")}, {"temperature", g.attributes().real("temperature")}}));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string logits = row_factors(inputs[0].shape.rank() - 1, "v!");
    return ir::parse_factors(logits + ", " + logits + " -> -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 30 * static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_kl_divergence_cpu, kl_divergence_workspace_cpu);
  return checked(def);
}

ir::OpDef kl_divergence_grad_def() {
  ir::OpDef def;
  def.name = "kl_divergence_grad";
  def.operands = {{"student_logits"}, {"teacher_logits"}, {.name = "dloss", .keep_f32 = true}};
  def.attributes = {{"scale", 1.0}, {"temperature", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    check_operands(inputs, attributes);
    expect_type(inputs[2], kLossType, "dloss");
    return {inputs[0]};
  };
  def.no_gradient = kLossIsLast;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string logits = row_factors(inputs[0].shape.rank() - 1, "v!");
    return ir::parse_factors(logits + ", " + logits + ", - -> " + logits);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 40);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 1}};
  on_cpu(def, prepare_kl_divergence_grad_cpu);
  return checked(def);
}

}  // namespace trireme::ops
