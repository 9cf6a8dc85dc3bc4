#include "trireme/ops/embedding/embedding.h"

#include "trireme/ir/partition.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

// "r0 r1 …": the dimensions of the tokens.
// A token of padding would be one of the first row.
std::string token_factors(const TensorType& tokens) {
  std::string text;
  for (int i = 0; i < tokens.shape.rank(); ++i) text += fmt::format("r{}= ", i);
  return text;
}

// The tokens as numbers of the rows that this rank has of a table; -1: another rank has the row.
ir::ValueId local_tokens(ir::PartitionContext& p, std::int64_t vocab, std::int64_t rows,
                         const std::vector<std::string>& axes) {
  const ir::ValueId place = p.place(fmt::format("{}", fmt::join(axes, "+")));
  return p.add("local_tokens", {p.input(0), place}, {{"vocab", vocab}, {"rows", rows}}).front();
}

std::shared_ptr<device::Kernel> prepare_local_tokens_cpu(const ir::KernelSpec& spec) {
  const std::int64_t vocab = spec.attributes.integer("vocab"), rows = spec.attributes.integer("rows");
  return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
    const auto* tokens = launch.in<std::int32_t>(0);
    auto* out = launch.out<std::int32_t>(0);
    const std::int64_t first = *launch.in<std::int64_t>(1) * rows;
    for (std::int64_t i = 0; i < n; ++i) {
      check_token(tokens[i], vocab, i);
      const std::int64_t own = tokens[i] - first;
      out[i] = own >= 0 && own < rows ? static_cast<std::int32_t>(own) : -1;
    }
  });
}

}  // namespace

void check_token(std::int32_t token, std::int64_t vocab, std::int64_t position) {
  if (token < 0 || token >= vocab) [[unlikely]]
    fail("token {} at position {} is outside a vocabulary of {}", token, position, vocab);
}

ir::OpDef local_tokens_def() {
  ir::OpDef def;
  def.name = "local_tokens";
  def.operands = {{"tokens"}, {"place"}};
  def.attributes = {{"vocab", std::int64_t{0}}, {"rows", std::int64_t{0}}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes& attributes) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    expect_type(inputs[1], {DType::i64, {}}, "place");
    for (const char* name : {"vocab", "rows"})
      if (attributes.integer(name) < 1) fail("'{}' must be at least 1, got {}", name, attributes.integer(name));
    return {inputs[0]};
  };
  def.no_gradient = "tokens are not differentiated";
  def.index = {0, [](std::span<const TensorType>, const ir::Attributes& attributes) {
                 return ir::IndexRange{attributes.integer("vocab"), false};
               }};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = token_factors(inputs[0]);
    return ir::parse_factors((rows.empty() ? "-" : rows) + ", - -> " + (rows.empty() ? "-" : rows));
  };
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    return one_pass(inputs, outputs, 2);
  };
  def.with_precision(ir::Precision::follow);
  on_cpu(def, prepare_local_tokens_cpu);
  return checked(def);
}

ir::OpDef embedding_def() {
  ir::OpDef def;
  def.name = "embedding";
  def.operands = {{"tokens"}, {"table"}};
  def.attributes = {{"masked", false}};
  def.infer = [](std::span<const TensorType> inputs, const ir::Attributes&) -> ir::Types {
    expect_dtype(inputs[0], DType::i32, "tokens");
    expect_compute(inputs[1], "table");
    if (inputs[1].shape.rank() != 2) fail("'table' must be [V,D], got {}", inputs[1].str());
    return {{inputs[1].dtype, inputs[0].shape + inputs[1].shape.slice(1, 2)}};
  };
  def.gradient = [](ir::GradientContext& g) {
    g.set(1, ir::apply1("embedding_grad", {g.input(0), g.grad()}, {{"vocab", g.input(1).shape()[0]}}));
  };
  def.index = {0, [](std::span<const TensorType> inputs, const ir::Attributes& attributes) {
                 return ir::IndexRange{inputs[1].shape[0], attributes.boolean("masked")};
               }};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = token_factors(inputs[0]);
    return ir::parse_factors(rows + ", v* d -> " + rows + "d");
  };
  def.partition = [](ir::PartitionContext& p) {
    p.set(
        0,
        p.add("embedding",
              {local_tokens(p, p.whole_input(1).shape[0], p.type(p.input(1)).shape[0], p.input_axes(1, 0)), p.input(1)},
              {{"masked", true}})
            .front(),
        true);
  };
  def.traits.pads = true;
  def.cost = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs, const ir::Attributes&) {
    // Only the rows that are asked for are read.
    const auto written = static_cast<double>(outputs[0].bytes());
    return ir::Cost{0, static_cast<double>(inputs[0].bytes()) + written, written};
  };
  def.with_precision(ir::Precision::low);
  on_cpu(def, prepare_embedding_cpu);
  return checked(def);
}

ir::OpDef embedding_grad_def() {
  ir::OpDef def;
  def.name = "embedding_grad";
  def.operands = {{"tokens"}, {"dy"}};
  def.attributes = {{"vocab", std::int64_t{0}}, {"out", std::string("same")}, {"masked", false}};
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
  def.index = {0, [](std::span<const TensorType>, const ir::Attributes& attributes) {
                 return ir::IndexRange{attributes.integer("vocab"), attributes.boolean("masked")};
               }};
  def.factors = [](std::span<const TensorType> inputs, std::span<const TensorType>, const ir::Attributes&) {
    const std::string rows = token_factors(inputs[0]);
    return ir::parse_factors(rows + ", " + rows + "d -> v* d");
  };
  def.partition = [](ir::PartitionContext& p) {
    const std::int64_t rows = p.local_output(0).shape[0];
    const ir::ValueId tokens = local_tokens(p, p.whole_output(0).shape[0], rows, p.output_axes(0, 0));
    p.set(0, p.add("embedding_grad", {tokens, p.input(1)},
                   {{"vocab", rows}, {"out", p.attributes().text("out")}, {"masked", true}})
                 .front());
  };
  def.traits.pads = true;
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
