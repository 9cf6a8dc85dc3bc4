#include "trireme/ops/loss/regression.h"

#include "trireme/ops/loss/loss.h"

namespace trireme::ops {
namespace {

ir::OpDef regression_def(const char* name) {
  ir::OpDef def;
  def.name = name;
  def.operands = {{"pred"}, {"target"}};
  def.attributes = {{"scale", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "pred");
    expect_type(inputs[1], inputs[0], "target");
    return {kLossType};
  };
  def.gradient = [grad = def.name + "_grad"](ir::GradientContext& g) {
    const ir::Value d = ir::apply1(grad, {g.input(0), g.input(1), g.grad()}, {{"scale", g.attributes().real("scale")}});
    g.set(0, d);
    if (g.needs(1)) g.set(1, ir::apply1("scale", {d}, {{"factor", -1.0}}));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = row_factors(inputs[0].shape.rank());
    return ir::parse_factors(rows + ", " + rows + " -> -");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = 3 * static_cast<double>(inputs[0].elements());
    return cost;
  };
  def.with_precision(ir::Precision::keep);
  return def;
}

ir::OpDef regression_grad_def(const char* name) {
  ir::OpDef def;
  def.name = name;
  def.operands = {{"pred"}, {"target"}, {.name = "dloss", .keep_f32 = true}};
  def.attributes = {{"scale", 1.0}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_compute(inputs[0], "pred");
    expect_type(inputs[1], inputs[0], "target");
    expect_type(inputs[2], kLossType, "dloss");
    return {inputs[0]};
  };
  def.no_gradient = kLossIsLast;
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = row_factors(inputs[0].shape.rank());
    return ir::parse_factors(rows + ", " + rows + ", - -> " + rows);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 2);
  };
  def.with_precision(ir::Precision::keep);
  def.traits.in_place = {{0, 0}, {0, 1}};
  return def;
}

}  // namespace

ir::OpDef mean_absolute_error_def() {
  ir::OpDef def = regression_def("mean_absolute_error");
  on_cpu(def, prepare_mean_absolute_error_cpu, regression_workspace_cpu);
  return checked(def);
}

ir::OpDef mean_absolute_error_grad_def() {
  ir::OpDef def = regression_grad_def("mean_absolute_error_grad");
  on_cpu(def, prepare_mean_absolute_error_grad_cpu);
  return checked(def);
}

ir::OpDef squared_error_def() {
  ir::OpDef def = regression_def("squared_error");
  on_cpu(def, prepare_squared_error_cpu, regression_workspace_cpu);
  return checked(def);
}

ir::OpDef squared_error_grad_def() {
  ir::OpDef def = regression_grad_def("squared_error_grad");
  on_cpu(def, prepare_squared_error_grad_cpu);
  return checked(def);
}

}  // namespace trireme::ops
