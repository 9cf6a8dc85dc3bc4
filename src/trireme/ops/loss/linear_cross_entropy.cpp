#include "trireme/ops/loss/linear_cross_entropy.h"

#include "trireme/ops/loss/loss.h"
#include "trireme/ops/loss/sharded_cross_entropy.h"

namespace trireme::ops {

ir::OpDef linear_cross_entropy_def() {
  ir::OpDef def;
  def.name = "linear_cross_entropy";
  def.operands = {{"x"}, {"weight"}, {"targets"}, {.name = "dloss", .optional = true, .keep_f32 = true}};
  def.attributes = {{"scale", 1.0},
                    {"with_gradients", false},
                    {"chunk", std::int64_t{0}},
                    {"out", std::string("same")},
                    {"tf32", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_logits(inputs[0], "x");
    if (inputs[1].shape.rank() != 2) fail("'weight' must be [V,D], got {}", inputs[1].str());
    expect_type(inputs[1], {inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape.back()}}, "weight");
    expect_type(inputs[2], target_type(inputs[0]), "targets");
    if (attributes.integer("chunk") < 0) fail("'chunk' must not be negative, got {}", attributes.integer("chunk"));
    if (inputs[3].present) expect_type(inputs[3], kLossType, "dloss");
    const DType dweight = out_dtype(attributes.text("out"), inputs[1].dtype);
    if (!attributes.boolean("with_gradients")) return {kLossType};
    return {kLossType, inputs[0], {dweight, inputs[1].shape}};
  };
  def.gradient = [](ir::GradientContext& g) {
    g.extend_forward({{"with_gradients", true}});
    const ir::Value dloss = g.grad(0);
    if (g.is_given(dloss)) g.add_operand(3, dloss);
    const bool done = g.is_given(dloss) || g.is_one(dloss);
    for (std::size_t i = 0; i < 2; ++i) g.set(i, done ? g.output(i + 1) : ir::apply1("mul", {g.output(i + 1), dloss}));
  };
  def.index = {2, [](std::span<const TensorType> inputs, const ir::Attributes&) {
                 return ir::IndexRange{inputs[1].shape[0], true};
               }};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    const int rank = inputs[2].shape.rank();
    const std::string x = row_factors(rank, "d!");
    const std::string gradients = outputs.size() > 1 ? ", " + x + ", v* d!" : "";
    return ir::parse_factors(x + ", v* d!, " + row_factors(rank) + ", - -> -" + gradients);
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    const double logits = static_cast<double>(inputs[2].elements()) * static_cast<double>(inputs[1].shape[0]);
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = logits * (10 + (outputs.size() > 1 ? 6 : 2) * static_cast<double>(inputs[0].shape.back()));
    return cost;
  };
  def.partition = partition_linear_cross_entropy;
  def.traits.pads = true;
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_linear_cross_entropy_cpu, linear_cross_entropy_workspace_cpu);
  return checked(def);
}

}  // namespace trireme::ops
