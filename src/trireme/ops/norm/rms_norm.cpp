#include "trireme/ops/norm/rms_norm.h"

#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"

namespace trireme::ops {

ir::OpDef rms_norm_def() {
  ir::OpDef def;
  def.name = "rms_norm";
  def.operands = {{.name = "x"}, {.name = "weight", .keep_f32 = true}, {.name = "residual", .optional = true}};
  def.attributes = {{"eps", 1e-5}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    ir::Types outputs = {inputs[0], per_row(inputs[0])};
    if (inputs[2].present) {
      expect_type(inputs[2], inputs[0], "residual");
      outputs.push_back(inputs[0]);
    }
    return outputs;
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1)) fail("the statistics of rms_norm are not differentiated");
    const bool fused = static_cast<bool>(g.input(2));
    const ir::Value dsum = fused ? g.grad(2) : ir::Value();
    ir::Value dx = dsum;
    if (g.grad(0)) {
      const auto grads =
          ir::apply("rms_norm_grad", {fused ? g.output(2) : g.input(0), g.input(1), g.output(1), g.grad(0), dsum});
      dx = grads[0];
      g.set(1, grads[1]);
    }
    g.set(0, dx);
    if (fused) g.set(2, dx);
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return row_factors(inputs[0].shape, inputs[2].present ? "xdx" : "xd-", outputs.size() == 3 ? "xrx" : "xr");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 4);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 2}, {2, 0}, {2, 2}};
  on_cpu(def, prepare_rms_norm_cpu);
  return checked(std::move(def));
}

ir::OpDef rms_norm_grad_def() {
  ir::OpDef def;
  def.name = "rms_norm_grad";
  def.operands = {{.name = "s"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "rstd", .keep_f32 = true},
                  {.name = "dy"},
                  {.name = "dsum", .optional = true}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], per_row(inputs[0]), "rstd");
    expect_type(inputs[3], inputs[0], "dy");
    if (inputs[4].present) expect_type(inputs[4], inputs[0], "dsum");
    return {inputs[0], inputs[1]};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    return row_factors(inputs[0].shape, inputs[4].present ? "xdrxx" : "xdrx-", "xd");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 10);
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 3}, {0, 4}};
  on_cpu(def, prepare_rms_norm_grad_cpu, rms_norm_grad_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
