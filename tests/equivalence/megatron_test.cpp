// What the Megatron papers say of a transformer block that ranks share: which matrices, which collectives, how many
// bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "equivalence/training.h"
#include "support/golden.h"
#include "trireme/core/text.h"
#include "trireme/program/memory_plan.h"
#include "trireme/train/sharding.h"

namespace trireme::testing {
namespace {

train::Config block_model(const std::string& name, int tp) {
  train::Config config = small_model(name);
  config.train.batch = 12;
  config.model.context = 24;
  config.model.heads = config.model.kv_heads = tp == 3 ? 6 : 4;
  if (name == "gpt2") config.model.kv_heads = 0;
  config.model.head_dim = 0;
  config.model.ffn = 48;
  train::resolve_model(config, config.model.vocab);
  return config;
}

bool in_first_block(const std::string& name) { return name.starts_with("blocks.0."); }

// A block's parameters and forward values with the shardings that were inferred, and the collectives that came of them.
std::string plan_of(const std::string& text, const GoldenOptions& given) {
  GoldenOptions options = given;
  train::Config config = block_model(take(options, "model", "gpt2"), 2);
  config = over_mesh(config, take(options, "mesh", "tp=2"));
  config.parallel.sequence = take(options, "sequence", "false") == "true";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (!line.starts_with("//") && equals != std::string::npos)
      config.parallel.sharding[line.substr(0, equals)] = line.substr(equals + 3);
  }
  const train::Registry registry;
  const ir::Module module = train::explain_sharding(config, registry).module;
  std::string out;
  for (const ir::State& state : module.states)
    if (state.trained && in_first_block(state.name))
      out += fmt::format("parameter {} {} {}\n", state.name, state.type.str(), state.sharding.str());
  const ir::Graph& forward = module.graph("micro");
  for (const ir::Node& node : forward.nodes)
    if (const ir::ValueInfo& value = forward.value(node.outputs.front());
        node.phase == ir::Phase::forward && in_first_block(value.name))
      out += fmt::format("value {} {} {}\n", value.name, value.type.str(), value.sharding.str());
  const Trained trained(config);
  const ir::Graph& local = trained.role().module.graph("micro");
  for (const ir::Node& node : local.nodes)
    if (const ir::ValueInfo& value = local.value(node.outputs.front());
        node.op->traits.collective && in_first_block(value.name))
      out += fmt::format("{} {} over {}\n", node.phase == ir::Phase::forward ? "forward" : "backward", node.op->name,
                         node.attributes.text("axis"));
  return out;
}

class Megatron : public ::testing::TestWithParam<Golden> {};
TEST_P(Megatron, TwoAnnotationsMakeTheWholePlan) { check_golden(GetParam(), plan_of); }
INSTANTIATE_TEST_SUITE_P(Blocks, Megatron, ::testing::ValuesIn(goldens("megatron")),
                         [](const auto& given) { return given.param.name; });

// Rounds in which a rank waits for its neighbours along tp, in one step. A ring's all-reduce has 2(N−1) of them, a
// gather or a scatter N−1.
std::uint64_t rounds(const train::Config& config) {
  Trained trained(config);
  trained.train(1);
  const auto counted = [&] { return trained.session().ranks().front()->groups()->group("tp").counters().steps; };
  const std::uint64_t before = counted();
  trained.train(1);
  return counted() - before;
}

TEST(MegatronCounters, CollectivesOfABlock) {
  for (const char* name : {"gpt2", "llama"})
    for (const int tp : {2, 3, 4})
      for (const bool sequence : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tp={} sequence={}", name, tp, sequence));
        train::Config config = over_mesh(block_model(name, tp), fmt::format("tp={}", tp));
        config.parallel.sequence = sequence;
        config.parallel.allreduce = "ring";
        const std::uint64_t fewer = rounds(config);
        ++config.model.layers;
        // 2 + 2 all-reduces; or 4 gathers and 4 scatters, and 2 gathers that fetch what was saved as shards.
        const std::uint64_t expected = sequence ? 4 + 4 + 2 : 2 * (2 + 2);
        EXPECT_EQ(rounds(config) - fewer, expected * static_cast<std::uint64_t>(tp - 1));
      }
}

// What a block saves of one row of tokens, in numbers: of the ranks together what tp shards, and what each has whole.
//
//   gpt2    what both norms read and make, with their means and deviations; queries, keys, values and what the heads
//           make of them, with a sum of exponentials for each; what the activation function reads and makes
//   llama   the same without means, and with the product of the gate
//
// With the sequence nothing is whole: what norms read and make is sharded too, and gathered again for the gradients.
struct Saved {
  std::int64_t sharded = 0, whole = 0;
};
Saved saved_of(const models::ModelConfig& m, bool sequence) {
  const bool llama = m.family == "llama";
  const std::int64_t statistics = llama ? 2 : 4;
  const std::int64_t inside = 4 * m.width + m.heads + (llama ? 3 : 2) * m.ffn;
  const std::int64_t between = 4 * m.width + statistics;
  if (sequence) return {.sharded = inside + between};
  return {.sharded = inside, .whole = between};
}

TEST(MegatronMemory, ABlocksActivationsHaveTheBytesOfTheFormula) {
  const auto activations = [](train::Config config, std::int64_t layers) {
    config.model.layers = layers;
    const Trained trained(config);
    return static_cast<std::int64_t>(program::peak(trained.role().program("step"))
                                         .categories[static_cast<std::size_t>(program::Category::activations)]);
  };
  constexpr std::int64_t kBlocks = 4;
  for (const char* name : {"gpt2", "llama"})
    for (const int tp : {1, 2, 4})
      for (const bool sequence : {false, true}) {
        if (sequence && tp == 1) continue;
        SCOPED_TRACE(fmt::format("{} tp={} sequence={}", name, tp, sequence));
        train::Config config = block_model(name, 2);
        if (config.model.family == "gpt2") config.model.dropout = 0.1;  // whose masks are drawn again
        if (tp > 1) config = over_mesh(config, fmt::format("tp={}", tp));
        config.parallel.sequence = sequence;
        const std::int64_t rows = config.train.batch * config.model.context;
        const std::int64_t bytes = activations(config, 2 * kBlocks) - activations(config, kBlocks);
        const Saved saved = saved_of(config.model, sequence);
        EXPECT_EQ(bytes, kBlocks * 4 * (rows * saved.sharded / tp + rows * saved.whole));
      }
}

}  // namespace
}  // namespace trireme::testing
