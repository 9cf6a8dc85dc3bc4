#include "trireme/ops/embedding/embedding.h"

#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// "r0 r1 …": the dimensions of the tokens.
std::string token_factors(const TensorType& tokens) {
  std::string text;
  for (int i = 0; i < tokens.shape.rank(); ++i) text += fmt::format("r{} ", i);
  return text;
}

}  // namespace

ir::OpDef embedding_def() {
  ir::OpDef def;
  def.name = "embedding";
  def.operands = {{"tokens"}, {"table"}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    expect_compute(inputs[1], "table");
    if (inputs[1].shape.rank() != 2) fail("'table' must be [V,D], got {}", inputs[1].str());
    return {{inputs[1].dtype, inputs[0].shape + inputs[1].shape.slice(1, 2)}};
  };
  def.gradient = [](ir::GradientContext& g) {
    g.set(1, ir::apply1("embedding_grad", {g.input(0), g.grad()}, {{"vocab", g.input(1).shape()[0]}}));
  };
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = token_factors(inputs[0]);
    return ir::parse_factors(rows + ", v! d -> " + rows + "d");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    // Only the rows that are asked for are read.
    const auto written = static_cast<double>(outputs[0].bytes());
    return ir::Cost{0, static_cast<double>(inputs[0].bytes()) + written, written};
  };
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_embedding_cpu);
  return checked(def);
}

ir::Value embedding(ir::Value tokens, ir::Value table) {
  return ir::apply1("embedding", {tokens, table}, {}, table.scope());
}

ir::OpDef embedding_grad_def() {
  ir::OpDef def;
  def.name = "embedding_grad";
  def.operands = {{"tokens"}, {"dy"}};
  def.attributes = {{"vocab", std::int64_t{0}}, {"out", std::string("same")}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    expect_compute(inputs[1], "dy");
    if (inputs[1].shape.rank() != inputs[0].shape.rank() + 1)
      fail("'dy' must have one dimension more than 'tokens' {}, got {}", inputs[0].str(), inputs[1].str());
    expect_shape(inputs[1], inputs[0].shape + Shape{inputs[1].shape.back()}, "dy");
    const std::int64_t vocab = attributes.integer("vocab");
    if (vocab < 1) fail("'vocab' must be at least 1, got {}", vocab);
    return {{out_dtype(attributes.text("out"), inputs[1].dtype), {vocab, inputs[1].shape.back()}}};
  };
  def.no_gradient = "second derivatives are not taken";
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = token_factors(inputs[0]);
    return ir::parse_factors(rows + ", " + rows + "d -> v! d");
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    ir::Cost cost = one_pass(inputs, outputs, 0);
    cost.flops = static_cast<double>(inputs[1].elements());
    return cost;
  };
  def.with_precision(ir::Precision::follow);
  def.traits.accumulates = true;
  on_cpu(def, prepare_embedding_grad_cpu, embedding_grad_workspace_cpu);
  return checked(def);
}

}  // namespace trireme::ops
