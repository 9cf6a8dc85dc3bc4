#include "trireme/ops/norm/batch_norm.h"

#include "trireme/ops/norm/batch_norm_parts.h"
#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"

namespace trireme::ops {
namespace {

// Channels may be cut. Rows may be cut only where no statistics are taken over them, and where every output either has
// the rows or is a sum over them.
ir::Factors channel_factors(const Shape& x, std::size_t operands, const std::vector<std::size_t>& full_inputs,
                            std::size_t outputs, bool rows_whole) {
  const int rank = x.rank();
  ir::Factors factors;
  for (int i = 0; i + 1 < rank; ++i)
    factors.factors.push_back({"r" + std::to_string(i), rows_whole ? ir::Factor::Kind::whole : ir::Factor::Kind::free});
  factors.factors.push_back({"c", ir::Factor::Kind::free});
  std::vector<int> all(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank; ++i) all[static_cast<std::size_t>(i)] = i;
  factors.inputs.assign(operands, {rank - 1});
  for (const std::size_t i : full_inputs) factors.inputs[i] = all;
  factors.outputs.assign(outputs, {rank - 1});
  factors.outputs[0] = all;
  return factors;
}

}  // namespace

ir::OpDef batch_norm_def() {
  ir::OpDef def;
  def.name = "batch_norm";
  def.operands = {{.name = "x"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "bias", .keep_f32 = true},
                  {.name = "running_mean", .keep_f32 = true},
                  {.name = "running_var", .keep_f32 = true}};
  def.attributes = {{"training", true}, {"momentum", 0.1}, {"eps", 1e-5}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], inputs[1], "bias");
    expect_type(inputs[3], inputs[1], "running_mean");
    expect_type(inputs[4], inputs[1], "running_var");
    if (attributes.boolean("training") && inputs[0].elements() == 0)
      fail("'x' must have at least one row to take statistics of, got {}", inputs[0].str());
    return {inputs[0], inputs[1], inputs[1], inputs[1], inputs[1]};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1) || g.grad(2)) fail("the statistics of batch_norm are not differentiated");
    if (!g.grad(0)) return;
    const auto grads = ir::apply("batch_norm_grad", {g.input(0), g.input(1), g.output(1), g.output(2), g.grad(0)},
                                 {{"training", g.attributes().boolean("training")}});
    g.set(0, grads[0]);
    g.set(1, grads[1]);
    g.set(2, grads[2]);
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    return channel_factors(inputs[0].shape, 5, {0}, 5, true);
  };
  def.partition = partition_batch_norm;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                const ir::Attributes& attributes) {
    ir::Cost cost = one_pass(inputs, outputs, 3);
    if (attributes.boolean("training")) {
      cost.flops += 5 * static_cast<double>(inputs[0].elements());
      cost.bytes_read += static_cast<double>(inputs[0].bytes());
    }
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {3, 3}, {4, 4}};
  on_cpu(def, prepare_batch_norm_cpu, batch_norm_workspace);
  return checked(std::move(def));
}

ir::OpDef batch_norm_grad_def() {
  ir::OpDef def;
  def.name = "batch_norm_grad";
  def.operands = {{.name = "x"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "mean", .keep_f32 = true},
                  {.name = "rstd", .keep_f32 = true},
                  {.name = "dy"}};
  def.attributes = {{"training", true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], inputs[1], "mean");
    expect_type(inputs[3], inputs[1], "rstd");
    expect_type(inputs[4], inputs[0], "dy");
    return {inputs[0], inputs[1], inputs[1]};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes& attributes) {
    return channel_factors(inputs[0].shape, 5, {0, 4}, 3, attributes.boolean("training"));
  };
  def.partition = partition_batch_norm_grad;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 10);
    cost.bytes_read += static_cast<double>(inputs[0].bytes() + inputs[4].bytes());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 4}};
  on_cpu(def, prepare_batch_norm_grad_cpu, batch_norm_grad_workspace);
  return checked(std::move(def));
}

BatchNorm batch_norm(ir::Value x, ir::Value weight, ir::Value bias, ir::Value running_mean, ir::Value running_var,
                     bool training, double momentum, double eps) {
  const auto outputs = ir::apply("batch_norm", {x, weight, bias, running_mean, running_var},
                                 {{"training", training}, {"momentum", momentum}, {"eps", eps}});
  return {outputs[0], outputs[3], outputs[4]};
}

}  // namespace trireme::ops
