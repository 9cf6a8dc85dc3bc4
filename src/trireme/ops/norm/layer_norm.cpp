#include "trireme/ops/norm/layer_norm.h"

#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"

namespace trireme::ops {

ir::OpDef layer_norm_def() {
  ir::OpDef def;
  def.name = "layer_norm";
  def.operands = {{.name = "x"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "bias", .optional = true, .keep_f32 = true},
                  {.name = "residual", .optional = true}};
  def.attributes = {{"eps", 1e-5}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    if (inputs[2].present) expect_type(inputs[2], inputs[1], "bias");
    ir::Types outputs = {inputs[0], per_row(inputs[0]), per_row(inputs[0])};
    if (inputs[3].present) {
      expect_type(inputs[3], inputs[0], "residual");
      outputs.push_back(inputs[0]);
    }
    return outputs;
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1) || g.grad(2)) fail("the statistics of layer_norm are not differentiated");
    const bool fused = static_cast<bool>(g.input(3));
    const ir::Value dsum = fused ? g.grad(3) : ir::Value();
    ir::Value dx = dsum;
    if (g.grad(0)) {
      const bool has_bias = static_cast<bool>(g.input(2));
      const auto grads = ir::apply(
          "layer_norm_grad", {fused ? g.output(3) : g.input(0), g.input(1), g.output(1), g.output(2), g.grad(0), dsum},
          {{"has_bias", has_bias}});
      dx = grads[0];
      g.set(1, grads[1]);
      if (has_bias) g.set(2, grads[2]);
    }
    g.set(0, dx);
    if (fused) g.set(3, dx);
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    const std::string operands = std::string("xd") + (inputs[2].present ? 'd' : '-') + (inputs[3].present ? 'x' : '-');
    return row_factors(inputs[0].shape, operands, outputs.size() == 4 ? "xrrx" : "xrr");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 8);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 3}, {3, 0}, {3, 3}};
  on_cpu(def, prepare_layer_norm_cpu);
  return checked(std::move(def));
}

ir::OpDef layer_norm_grad_def() {
  ir::OpDef def;
  def.name = "layer_norm_grad";
  def.operands = {{.name = "s"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "mean", .keep_f32 = true},
                  {.name = "rstd", .keep_f32 = true},
                  {.name = "dy"},
                  {.name = "dsum", .optional = true}};
  def.attributes = {{"has_bias", true}, {"total", std::string("none")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], per_row(inputs[0]), "mean");
    expect_type(inputs[3], per_row(inputs[0]), "rstd");
    expect_type(inputs[4], inputs[0], "dy");
    if (inputs[5].present) expect_type(inputs[5], inputs[0], "dsum");
    ir::Types outputs = {inputs[0], inputs[1]};
    if (attributes.boolean("has_bias")) outputs.push_back(inputs[1]);
    if (const std::string& total = attributes.text("total"); total != "none")
      outputs.push_back({out_dtype(total, inputs[0].dtype), inputs[1].shape});
    return outputs;
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return row_factors(inputs[0].shape, inputs[5].present ? "xdrrxx" : "xdrrx-",
                       "x" + std::string(outputs.size() - 1, 'd'));
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 14);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 4}, {0, 5}};
  on_cpu(def, prepare_layer_norm_grad_cpu, layer_norm_grad_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
