#include "trireme/ops/norm/batch_norm.h"

#include "trireme/ops/norm/batch_norm_parts.h"
#include "trireme/ops/norm/cpu_kernels.h"
#include "trireme/ops/norm/row_norm.h"

namespace trireme::ops {
namespace {

// Channels may be sharded. Rows may be by themselves where no statistics are taken over them and every output either
// has the rows or is a sum over them; otherwise by partition. Each operand is described by one letter: 'x' rows, 'c'
// one number per channel, '-' absent.
ir::Factors channel_factors(const Shape& x, std::string_view inputs, std::string_view outputs, bool rows_whole) {
  const int rank = x.rank();
  ir::Factors factors;
  for (int i = 0; i + 1 < rank; ++i)
    factors.factors.push_back({.name = "r" + std::to_string(i),
                               .kind = rows_whole ? ir::Factor::Kind::partitioned : ir::Factor::Kind::free,
                               .exact = true});
  factors.factors.push_back({"c", ir::Factor::Kind::free});
  std::vector<int> all(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank; ++i) all[static_cast<std::size_t>(i)] = i;
  const auto side = [&](std::string_view letters) {
    std::vector<std::vector<int>> dims;
    for (const char letter : letters)
      dims.push_back(letter == 'x' ? all : letter == 'c' ? std::vector<int>{rank - 1} : std::vector<int>());
    return dims;
  };
  factors.inputs = side(inputs);
  factors.outputs = side(outputs);
  return factors;
}

bool relu(const ir::Attributes& attributes) {
  const std::string& activation = attributes.text("activation");
  if (activation != "none" && activation != "relu")
    fail("'activation' must be \"none\" or \"relu\", got \"{}\"", activation);
  return activation == "relu";
}

}  // namespace

ir::OpDef batch_norm_def() {
  ir::OpDef def;
  def.name = "batch_norm";
  def.operands = {{.name = "x"},
                  {.name = "weight", .keep_f32 = true},
                  {.name = "bias", .keep_f32 = true},
                  {.name = "running_mean", .keep_f32 = true},
                  {.name = "running_var", .keep_f32 = true},
                  {.name = "residual", .optional = true}};
  def.attributes = {{"training", true}, {"momentum", 0.1}, {"eps", 1e-5}, {"activation", "none"}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], inputs[1], "bias");
    expect_type(inputs[3], inputs[1], "running_mean");
    expect_type(inputs[4], inputs[1], "running_var");
    if (inputs[5].present) expect_type(inputs[5], inputs[0], "residual");
    relu(attributes);
    if (attributes.boolean("training") && inputs[0].elements() == 0)
      fail("'x' must have at least one row to take statistics of, got {}", inputs[0].str());
    return {inputs[0], inputs[1], inputs[1], inputs[1], inputs[1]};
  };
  def.gradient = [](ir::GradientContext& g) {
    if (g.grad(1) || g.grad(2)) fail("the statistics of batch_norm are not differentiated");
    if (!g.grad(0)) return;
    const bool residual = static_cast<bool>(g.input(5));
    const bool through = relu(g.attributes());
    // Without a residual the gate follows from x.
    const ir::Value y = through && residual ? g.output(0) : ir::Value();
    const auto grads = ir::apply("batch_norm_grad",
                                 {g.input(0), g.input(1), g.output(1), g.output(2), g.grad(0),
                                  through && !residual ? g.input(2) : ir::Value(), y},
                                 {{"training", g.attributes().boolean("training")},
                                  {"activation", g.attributes().text("activation")},
                                  {"total", through && residual}});
    g.set(0, grads[0]);
    g.set(1, grads[1]);
    g.set(2, grads[2]);
    if (residual) g.set(5, through ? grads[3] : g.grad(0));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    return channel_factors(inputs[0].shape, inputs[5].present ? "xccccx" : "xcccc-", "xcccc", true);
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
  def.traits.in_place = {{0, 0}, {0, 5}, {3, 3}, {4, 4}};
  // Of channels. One of zeros has a spread of zero, so its rstd is no zero; nothing but zeros is multiplied by it.
  def.traits.pads = true;
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
                  {.name = "dy"},
                  {.name = "bias", .optional = true, .keep_f32 = true},
                  {.name = "y", .optional = true},
                  {.name = "more", .optional = true}};
  def.attributes = {{"training", true}, {"activation", "none"}, {"total", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_rows(inputs[0], inputs[1]);
    expect_type(inputs[2], inputs[1], "mean");
    expect_type(inputs[3], inputs[1], "rstd");
    expect_type(inputs[4], inputs[0], "dy");
    if (inputs[5].present) expect_type(inputs[5], inputs[1], "bias");
    if (inputs[6].present) expect_type(inputs[6], inputs[0], "y");
    if (inputs[7].present) expect_type(inputs[7], inputs[0], "more");
    const bool total = attributes.boolean("total");
    if (relu(attributes) && !inputs[5].present && !inputs[6].present)
      fail("the gradient of the activation needs 'bias' or 'y'");
    if (inputs[7].present && !total) fail("'more' needs total=true");
    ir::Types outputs = {inputs[0], inputs[1], inputs[1]};
    if (total) outputs.push_back(inputs[0]);
    return outputs;
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                   const ir::Attributes& attributes) {
    std::string operands = "xcccx---";
    for (const std::size_t i : {5, 6, 7})
      if (inputs[i].present) operands[i] = i == 5 ? 'c' : 'x';
    return channel_factors(inputs[0].shape, operands, outputs.size() > 3 ? "xccx" : "xcc",
                           attributes.boolean("training"));
  };
  def.partition = partition_batch_norm_grad;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 10);
    // The sums must be known before the first element of dx. What came through the gate is read back.
    cost.bytes_read += static_cast<double>(inputs[0].bytes() + inputs[4].bytes());
    if (inputs[6].present && outputs.size() == 3) cost.bytes_read += static_cast<double>(inputs[6].bytes());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.in_place = {{0, 0}, {0, 4}, {3, 4}, {3, 7}};
  def.traits.pads = true;
  on_cpu(def, prepare_batch_norm_grad_cpu, batch_norm_grad_workspace);
  return checked(std::move(def));
}

}  // namespace trireme::ops
