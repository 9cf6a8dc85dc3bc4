// Ranks that share the model's matrices train like one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "equivalence/trajectory.h"
#include "trireme/program/memory_plan.h"

namespace trireme::testing {
namespace {

train::Config model(const std::string& name, int tp) {
  train::Config config = small_model(name);
  config.train.batch = 12;
  if (!reads_images(config)) {
    // Heads divide; the vocabulary of 61 and the feed-forward width need padding.
    config.model.heads = tp == 3 ? 6 : 4;
    config.model.kv_heads = name != "llama" ? 0 : tp == 3 ? 3 : tp == 4 ? 4 : 2;
    config.model.head_dim = 0;
    config.model.ffn = 50;
    train::resolve_model(config, config.model.vocab);
  } else {
    config.model.width = 26;
  }
  return config;
}

class TensorParallel : public ::testing::TestWithParam<std::string> {};

TEST_P(TensorParallel, RanksTrainLikeOne) {
  for (const int tp : {2, 3, 4}) {
    SCOPED_TRACE(fmt::format("tp={}", tp));
    const train::Config plain = model(GetParam(), tp);
    expect_like_one_rank(plain, over_mesh(plain, fmt::format("tp={}", tp)));
  }
}

TEST_P(TensorParallel, WithReplicasAndShardedState) {
  for (const int zero : {0, 1, 2, 3})
    for (const char* mesh : {"dp=2,tp=2", "tp=3,dp=2", "tp=4,dp=2"}) {
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      const train::Config plain = model(GetParam(), ir::parse_mesh(mesh).size_of("tp"));
      expect_like_one_rank(plain, over_mesh(plain, mesh, zero));
    }
}

TEST_P(TensorParallel, WithDropoutMicroBatchesAndLowPrecision) {
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    train::Config plain = model(GetParam(), 2);
    plain.model.dropout = 0.1;
    plain.train.precision = precision;
    plain.train.loss_scale = 1;
    plain.train.micro_batch = 6;
    if (std::string(precision) == "f32") {
      expect_like_one_rank(plain, over_mesh(plain, "dp=2,tp=2", 2), {.steps = 3});
      continue;
    }
    // AdamW would turn rounding, where a gradient is nearly zero, into full steps.
    plain.train.optimizer = "sgd";
    plain.train.lr = 0.05;
    expect_like_by_distance(plain, over_mesh(plain, "dp=2,tp=2", 2),
                            {.tolerance = kLowPrecision, .planted = std::string(precision) == "bf16"});
  }
}

std::size_t activations(const Trained& trained) {
  return program::peak(trained.role().program("step"))
      .categories[static_cast<std::size_t>(program::Category::activations)];
}

// What all ranks have of the activations is saved once by all of them together, and nothing is rounded.
TEST_P(TensorParallel, WithSavedActivationsSharded) {
  if (GetParam() == "mlp") GTEST_SKIP() << "its layers save columns, which no two ranks have";
  for (const char* mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    train::Config plain = model(GetParam(), mesh[3] == '4' ? 4 : 2);
    plain.model.layers = 6;
    if (!reads_images(plain)) plain.model.context = 96;
    plain.train.batch = 48;
    const train::Config whole = over_mesh(plain, mesh);
    Trained full(whole);
    train::Config config = whole;
    config.memory.activations = "sharded";
    Trained sharded(config);
    full.train(steps_asked());
    sharded.train(steps_asked());
    expect_same_bits(full, sharded);
    const double share = static_cast<double>(activations(sharded)) / static_cast<double>(activations(full));
    fmt::print("{} {}: {:.2f} of the activations\n", GetParam(), mesh, share);
    EXPECT_LT(share, 0.8);
    EXPECT_EQ(sharded.session().highest_offset(), sharded.compiled().arena_bytes());
  }
}

TEST_P(TensorParallel, WithTheSequenceShardedToo) {
  if (GetParam() == "mlp") GTEST_SKIP() << "it has no sequence";
  for (const char* mesh : {"tp=2", "tp=4", "dp=2,tp=2", "tp=3,dp=2", "tp=4,dp=2"})
    for (const int zero : {0, 1, 2, 3}) {
      const int tp = ir::parse_mesh(mesh).size_of("tp");
      if (zero > 0 && ir::parse_mesh(mesh).size_of("dp") == 1) continue;
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      train::Config plain = model(GetParam(), tp);
      plain.model.context = 24;
      plain.model.dropout = 0.1;
      train::Config parallel = over_mesh(plain, mesh, zero);
      parallel.parallel.sequence = true;
      expect_like_one_rank(plain, parallel);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel, ::testing::Values("mlp", "gpt2", "llama"));

// Collectives of one kind in a micro-batch, forwards and backwards, and the bytes of their results.
struct Traffic {
  std::map<std::string, int> forward;
  std::map<std::string, int> backward;
};

Traffic traffic_of(const train::Config& config) {
  Traffic traffic;
  const Trained trained(config);
  for (const ir::Node& node : trained.role().module.graph("micro").nodes)
    if (node.op->traits.collective)
      ++(node.phase == ir::Phase::forward ? traffic.forward : traffic.backward)[node.op->name];
  return traffic;
}

// What one more block adds.
Traffic traffic_per_block(train::Config config) {
  config.parallel.bucket.count = 1;  // each by itself
  const Traffic fewer = traffic_of(config);
  ++config.model.layers;
  Traffic more = traffic_of(config);
  for (auto& [kind, count] : more.forward) count -= fewer.forward.at(kind);
  for (auto& [kind, count] : more.backward) count -= fewer.backward.at(kind);
  std::erase_if(more.forward, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(more.backward, [](const auto& entry) { return entry.second == 0; });
  return more;
}

// Fewer key heads than ranks: 1 of 4, 2 of 4, 2 of 8 heads.
train::Config with_few_key_heads(int tp, int kv_heads, int heads) {
  train::Config config = model("llama", tp);
  config.model.width = 48;
  config.model.heads = heads;
  config.model.kv_heads = kv_heads;
  config.model.head_dim = 0;
  config.model.context = 24;
  train::resolve_model(config, config.model.vocab);
  return config;
}

struct KeyHeads {
  const char* mesh;
  int kv_heads;
  int heads;
};

TEST(TensorParallelKeyHeads, FewerThanRanks) {
  for (const KeyHeads& c : {KeyHeads{"tp=2", 1, 4}, {"tp=4", 1, 4}, {"tp=4", 2, 4}, {"tp=4", 2, 8}, {"tp=6", 2, 6}}) {
    SCOPED_TRACE(fmt::format("{}: {} of {} heads", c.mesh, c.kv_heads, c.heads));
    const train::Config plain = with_few_key_heads(ir::parse_mesh(c.mesh).size_of("tp"), c.kv_heads, c.heads);
    expect_like_one_rank(plain, over_mesh(plain, c.mesh));
    train::Config sequence = over_mesh(plain, c.mesh);
    sequence.parallel.sequence = true;
    expect_like_one_rank(plain, sequence);
  }
}

TEST(TensorParallelKeyHeads, WithReplicasShardedStateAndMore) {
  const train::Config plain = with_few_key_heads(4, 2, 8);
  for (const int zero : {0, 1, 2, 3})
    for (const char* mesh : {"dp=2,tp=4", "tp=4,dp=2"}) {
      SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
      train::Config config = over_mesh(plain, mesh, zero);
      config.parallel.sequence = zero % 2 == 1;
      expect_like_one_rank(plain, config);
    }
  train::Config stages = plain;
  stages.train.micro_batch = 3;
  expect_like_one_rank(stages, over_mesh(stages, "pp=2,tp=4"));
  train::Config saved = over_mesh(plain, "tp=4");
  Trained full(saved);
  saved.memory.activations = "sharded";
  Trained sharded(saved);
  full.train(2);
  sharded.train(2);
  expect_same_bits(full, sharded);
}

// Key heads and ranks of which neither divides the other: query heads are gathered, and every rank computes the whole
// attention.
TEST(TensorParallelKeyHeads, ThatRanksDoNotDivide) {
  for (const KeyHeads& c : {KeyHeads{"tp=2", 3, 6}, {"tp=3", 2, 6}, {"tp=4", 3, 12}, {"tp=2,dp=2", 3, 6}})
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{}: {} of {} heads, sequence {}", c.mesh, c.kv_heads, c.heads, sequence));
      const train::Config plain = with_few_key_heads(ir::parse_mesh(c.mesh).size_of("tp"), c.kv_heads, c.heads);
      train::Config config = over_mesh(plain, c.mesh);
      config.parallel.sequence = sequence;
      expect_like_one_rank(plain, config);
    }
}

// A rank has its query heads and the one key head that they share, computes these alone, and sums the gradients of the
// key head with those who share it once a step.
TEST(TensorParallelKeyHeads, EachRankHasTheOneThatItNeeds) {
  const Trained trained(over_mesh(with_few_key_heads(4, 2, 8), "tp=4"));
  const ir::Module& module = trained.role().module;
  const auto shape = [&](const char* name) { return module.state(module.find_state(name)).type.shape; };
  EXPECT_EQ(shape("blocks.0.attn.q.weight"), (Shape{2, 6, 48}));
  EXPECT_EQ(shape("blocks.0.attn.k.weight"), (Shape{1, 6, 48}));
  EXPECT_EQ(shape("blocks.0.attn.v.weight"), (Shape{1, 6, 48}));
  const ir::Graph& micro = module.graph("micro");
  for (const ir::Node& node : micro.nodes)
    if (node.op->name == "attention") {
      EXPECT_EQ(micro.type(node.inputs[0]).shape, (Shape{12, 24, 2, 6}));
      EXPECT_EQ(micro.type(node.inputs[1]).shape, (Shape{12, 24, 1, 6}));
    }
  train::Config config = over_mesh(with_few_key_heads(4, 2, 8), "tp=4");
  const Traffic plain = traffic_per_block(config);
  EXPECT_EQ(plain.forward, (std::map<std::string, int>{{"all_reduce", 2}}));
  EXPECT_EQ(plain.backward, (std::map<std::string, int>{{"all_reduce", 2}}));
  config.parallel.sequence = true;
  const Traffic sequence = traffic_per_block(config);
  EXPECT_EQ(sequence.forward, (std::map<std::string, int>{{"all_gather", 2}, {"reduce_scatter", 2}}));
}

// Of which parts of a micro-batch begin where kernels may.
train::Config in_parts(const char* name, int tp) {
  train::Config config = model(name, tp);
  config.model.context = 32;
  config.model.width = 32;
  config.model.ffn = 64;
  config.model.head_dim = 0;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// Products in parts, overlapped with the collectives next to them.
TEST(TensorParallelAsync, TrainsLikeOneRank) {
  for (const char* name : {"gpt2", "llama"})
    for (const auto& [mesh, zero] : {std::pair{"tp=2", 0}, {"tp=4", 0}, {"dp=2,tp=2", 3}})
      for (const bool sequence : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} zero={} sequence={}", name, mesh, zero, sequence));
        train::Config plain = in_parts(name, ir::parse_mesh(mesh).size_of("tp"));
        plain.model.dropout = 0.1;
        train::Config config = over_mesh(plain, mesh, zero);
        config.parallel.async_tp = true;
        config.parallel.sequence = sequence;
        expect_like_one_rank(plain, config);
      }
  train::Config plain = in_parts("gpt2", 2);
  plain.train.micro_batch = 4;
  for (const char* remat : {"none", "full", "selective"})
    for (const char* mesh : {"pp=2,tp=2", "tp=2"}) {
      SCOPED_TRACE(fmt::format("{} remat {}", mesh, remat));
      train::Config config = over_mesh(plain, mesh);
      config.parallel.async_tp = true;
      config.parallel.sequence = true;
      config.memory.remat = remat;
      config.memory.offload = "activations";
      expect_like_one_rank(plain, config);
    }
}

// Of bytes that the products wait for, and of those that are summed behind them, a part alone is exposed: while the
// others are on their way, products of other parts are computed.
TEST(TensorParallelAsync, CollectivesAreOverlappedWithTheirProducts) {
  for (const bool sequence : {false, true}) {
    std::array<double, 2> exposed{};
    std::array<double, 2> all{};
    for (const bool async : {false, true}) {
      train::Config config = over_mesh(in_parts("gpt2", 2), "tp=2");
      config.parallel.async_tp = async;
      config.parallel.sequence = sequence;
      const Trained trained(config);
      const std::vector<program::Instruction>& steps = trained.role().program("step").instructions;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind != program::Instruction::Kind::collective || steps[i].phase == ir::Phase::update) continue;
        double bytes = 0;
        for (const program::Operand& o : steps[i].outputs) bytes += static_cast<double>(o.type.bytes());
        all[async ? 1 : 0] += bytes;
        const auto waits = [&](const program::Instruction& later) {
          return later.stream == 0 &&
                 std::find(later.waits.begin(), later.waits.end(), steps[i].records) != later.waits.end();
        };
        bool hidden = false;
        for (std::size_t j = i + 1; j < steps.size() && !waits(steps[j]) && !hidden; ++j)
          hidden = steps[j].op != nullptr && steps[j].op->name == "matmul" && steps[j].stream == 0;
        if (!hidden) exposed[async ? 1 : 0] += bytes;
      }
    }
    fmt::print("sequence {}: exposed {:.0f} of {:.0f} bytes, in parts {:.0f} of {:.0f}\n", sequence, exposed[0], all[0],
               exposed[1], all[1]);
    EXPECT_DOUBLE_EQ(all[0], all[1]);
    // The embedding's sum and that of the loss's gradient have no product before them.
    EXPECT_LT(exposed[1], 0.7 * exposed[0]);
  }
}

// The words of a table are counted through both axes; more ranks than one axis has share it.
TEST(TensorParallelVocabulary, OverSeveralAxes) {
  for (const char* name : {"gpt2", "llama"})
    for (const int zero : {0, 3}) {
      SCOPED_TRACE(fmt::format("{} zero={}", name, zero));
      const train::Config plain = model(name, 2);
      train::Config config = over_mesh(plain, "dp=2,tp=2", zero);
      const std::string table = std::string(name) == "gpt2" ? "wte.weight" : "embed.weight";
      config.parallel.sharding = {{table, "vocab:tp,vocab:dp"}, {"*.mlp.down.weight", "in:tp"}};
      if (std::string(name) == "llama") config.parallel.sharding["head.weight"] = "vocab:dp,vocab:tp";
      expect_like_one_rank(plain, config);
      // Shards of 16 of the 61 words are gathered over both axes at once, in the order of the annotation.
      Trained one(plain);
      Trained many(config);
      const data::Batch batch = batch_of(plain, 5);
      const auto words = std::span(batch.tokens).first(static_cast<std::size_t>(plain.model.context));
      const auto expected = one.session().predict(words);
      const std::vector<float> logits(expected.begin(), expected.end());
      const auto found = many.session().predict(words);
      ASSERT_EQ(found.size(), logits.size());
      for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(found[i], logits[i], 1e-4) << "word " << i;
    }
}

// Columns that the next value has as positions: all-to-all, forwards and backwards.
TEST(TensorParallelAnnotations, ThatNeedAnAllToAllTrainLikeOneRank) {
  for (const auto& [name, matrix, value] :
       {std::tuple{"gpt2", "*.mlp.up.weight", "*.mlp.up.gelu"}, {"llama", "*.mlp.gate.weight", "*.mlp.gate.matmul"}})
    for (const char* mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
      SCOPED_TRACE(fmt::format("{} {}", name, mesh));
      train::Config plain = model(name, ir::parse_mesh(mesh).size_of("tp"));
      plain.model.context = 24;
      plain.model.ffn = 48;
      train::Config config = over_mesh(plain, mesh, mesh[0] == 'd' ? 3 : 0);
      config.parallel.sharding = {{matrix, "out:tp"}, {value, "sequence:tp"}};
      const Traffic traffic = traffic_of(config);
      EXPECT_GT(traffic.forward.at("all_to_all"), 0);
      EXPECT_GT(traffic.backward.at("all_to_all"), 0);
      expect_like_one_rank(plain, config);
    }
}

// What is sharded over more ranks than there are heads, where these become one dimension: it is no shared head.
TEST(TensorParallelAnnotations, OfHeadsThatAreMergedTrainLikeOneRank) {
  train::Config plain = model("gpt2", 2);
  plain.model.heads = 2;
  plain.model.head_dim = 0;
  plain.model.ffn = 48;
  train::resolve_model(plain, plain.model.vocab);
  train::Config config = plain;
  config.parallel.sharding = {{"*.mlp.up.matmul", "2:tp"}, {"*.attn.reshape", "2:tp"}};
  expect_like_one_rank(plain, over_mesh(config, "tp=4"));
}

TEST(TensorParallelTraffic, IsMegatronsPerBlock) {
  for (const char* name : {"gpt2", "llama"}) {
    SCOPED_TRACE(name);
    train::Config config = over_mesh(model(name, 2), "tp=2");
    config.model.context = 24;
    const Traffic plain = traffic_per_block(config);
    EXPECT_EQ(plain.forward, (std::map<std::string, int>{{"all_reduce", 2}}));
    EXPECT_EQ(plain.backward, (std::map<std::string, int>{{"all_reduce", 2}}));
    config.parallel.sequence = true;
    const Traffic sequence = traffic_per_block(config);
    EXPECT_EQ(sequence.forward, (std::map<std::string, int>{{"all_gather", 2}, {"reduce_scatter", 2}}));
    // Two of them fetch what was saved as shards for the weights' gradients.
    EXPECT_EQ(sequence.backward, (std::map<std::string, int>{{"all_gather", 4}, {"reduce_scatter", 2}}));
  }
}

// A ring's 2(N−1)/N of the tensor for an all-reduce: 4 a block; as gathers and scatters each (N−1)/N: 8, and 2 more.
TEST(TensorParallelTraffic, BytesAreThoseOfTheCollectives) {
  for (const auto& [name, sequence] : {std::pair{"gpt2", false}, {"gpt2", true}, {"llama", false}, {"llama", true}})
    for (const int tp : {2, 3, 4}) {
      SCOPED_TRACE(fmt::format("{} tp={} sequence={}", name, tp, sequence));
      std::array<std::uint64_t, 2> sent{};
      train::Config config = over_mesh(model(name, tp), fmt::format("tp={}", tp));
      config.model.context = 24;
      config.model.ffn = 48;
      config.parallel.sequence = sequence;
      config.parallel.allreduce = "ring";
      for (std::size_t more = 0; more < 2; ++more) {
        config.model.layers = 2 + static_cast<std::int64_t>(more);
        Trained trained(config);
        trained.train(1);
        const std::uint64_t before = trained.session().sent_bytes();
        trained.train(1);
        sent[more] = trained.session().sent_bytes() - before;
      }
      const std::uint64_t tensor = 12ULL * 24 * 24 * sizeof(float);
      const std::uint64_t part = tensor / static_cast<std::uint64_t>(tp) * static_cast<std::uint64_t>(tp - 1);
      // With the sequence sharded, norms and biases behind the sums are terms too, and are summed once a step.
      const std::uint64_t each = std::string(name) == "gpt2" ? 6 : 2;
      const std::uint64_t vectors = sequence ? each * 24 * sizeof(float) : 0;
      const std::uint64_t sums = 2 * vectors / static_cast<std::uint64_t>(tp) * static_cast<std::uint64_t>(tp - 1);
      EXPECT_EQ(sent[1] - sent[0], part * (sequence ? 10 : 8) + sums);
    }
}

}  // namespace
}  // namespace trireme::testing
