// What a sharded model gets wrong if its ranks are not thought of together: norms, dropout and padding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "equivalence/training.h"
#include "trireme/ops/collective/collective.h"

namespace trireme::testing {
namespace {

struct Sharded {
  const char* model;
  const char* mesh;
  int zero = 0;
  bool sequence = false;
};

train::Config on_mesh(const train::Config& plain, const Sharded& s) {
  train::Config config = over_mesh(plain, s.mesh, s.zero);
  config.parallel.sequence = s.sequence;
  return config;
}

// A parameter that several ranks have counts once, and one that they share out is added up.
TEST(ShardingTraps, TheNormOfGradientsIsThatOfOneRank) {
  for (const Sharded& s : {Sharded{"gpt2", "tp=2"},
                           {"gpt2", "tp=2", 0, true},
                           {"gpt2", "dp=2,tp=2", 1},
                           {"gpt2", "dp=2,tp=2", 3, true},
                           {"llama", "tp=4"},
                           {"llama", "dp=2,tp=4", 2, true},
                           {"mlp", "tp=3"},
                           {"convnet", "h=3,w=2"},
                           {"convnet", "dp=2,tp=2,h=2", 3}}) {
    SCOPED_TRACE(fmt::format("{} {} zero={} sequence={}", s.model, s.mesh, s.zero, s.sequence));
    train::Config plain = small_model(s.model);
    plain.train.clip = 0.05;
    plain.train.batch = 12;
    if (!reads_images(plain)) plain.model.context = 20;
    Trained one(plain);
    Trained many(on_mesh(plain, s));
    for (int step = 0; step < 3; ++step) {
      const train::StepResult a = one.step();
      const train::StepResult b = many.step();
      EXPECT_GT(a.grad_norm, plain.train.clip) << "nothing is clipped";
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 2e-5 * a.grad_norm) << "step " << step;
    }
    expect_equal_training(one, many, 2e-5);
  }
}

// Collectives of single numbers in the update.
int scalar_sums(const train::Config& config) {
  const Trained trained(config);
  const ir::Graph& update = trained.role().module.graph("update");
  int count = 0;
  for (const ir::Node& node : update.nodes)
    if (node.op->name == ops::kAllReduce)
      count += static_cast<int>(std::count_if(node.outputs.begin(), node.outputs.end(),
                                              [&](ir::ValueId id) { return update.type(id).shape.rank() == 0; }));
  return count;
}

TEST(ShardingTraps, TheNormTakesAsManySumsForAnyNumberOfLayers) {
  for (const Sharded& s : {Sharded{"gpt2", "tp=2", 0, true}, {"gpt2", "dp=2,tp=2", 3}, {"llama", "dp=2,tp=4", 1}}) {
    SCOPED_TRACE(fmt::format("{} {}", s.model, s.mesh));
    train::Config plain = small_model(s.model);
    plain.model.context = 20;
    const int few = scalar_sums(on_mesh(plain, s));
    plain.model.layers += 3;
    EXPECT_EQ(scalar_sums(on_mesh(plain, s)), few);
    EXPECT_LE(few, 6);
  }
}

// An element is dropped by its place in the whole tensor: a width of 6 and a context of 9 over three ranks.
TEST(ShardingTraps, DropoutDropsTheSameElements) {
  train::Config plain = small_model("gpt2");
  plain.model.width = 6;
  plain.model.heads = 3;
  plain.model.head_dim = 0;
  plain.model.ffn = 12;
  plain.model.context = 9;
  plain.model.dropout = 0.5;
  plain.train.batch = 6;
  train::resolve_model(plain, plain.model.vocab);
  Trained one(plain);
  one.train(3);
  for (const char* mesh : {"tp=3", "dp=2,tp=3"})
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{} sequence={}", mesh, sequence));
      Trained many(on_mesh(plain, {"gpt2", mesh, 0, sequence}));
      many.train(3);
      expect_equal_training(one, many, 2e-5);
    }
  // Other elements make another loss.
  train::Config other = plain;
  other.model.dropout = 0;
  Trained without(other);
  without.train(1);
  EXPECT_GT(std::abs(without.losses().front() - one.losses().front()), 1e-3 * one.losses().front());
}

std::vector<float> stored(train::Rank& rank, const std::string& name) {
  const ir::Module& module = rank.role().module;
  std::vector<float> values(static_cast<std::size_t>(module.state(module.find_state(name)).type.elements()));
  rank.read_state(name, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// 50 words over three ranks are 17 for each; the last row is padding.
TEST(ShardingTraps, PaddedWordsNeverWinAndStayZero) {
  train::Config plain = small_model("gpt2");
  plain.model.vocab = 50;
  plain.model.heads = 6;
  plain.model.head_dim = 0;
  train::resolve_model(plain, plain.model.vocab);
  Trained one(plain);
  Trained many(over_mesh(plain, "tp=3"));
  one.train(20);
  many.train(20);
  expect_equal_training(one, many, 2e-5);
  const auto width = static_cast<std::size_t>(plain.model.width);
  for (const char* name : {"wte.weight", "wte.weight/m", "wte.weight/v"}) {
    const std::vector<float> last = stored(many.session().rank(2), name);
    ASSERT_EQ(last.size(), 17 * width);
    EXPECT_TRUE(std::all_of(last.end() - static_cast<std::ptrdiff_t>(width), last.end(), [](float x) {
      return x == 0;
    })) << name;
    EXPECT_FALSE(std::all_of(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(width), [](float x) {
      return x == 0;
    })) << name;
  }
  const data::Batch batch = batch_of(plain, 5);
  const std::vector<std::int32_t> tokens(batch.tokens.begin(), batch.tokens.begin() + plain.model.context);
  const auto ours = one.session().predict(tokens);
  const auto theirs = many.session().predict(tokens);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4) << i;
}

}  // namespace
}  // namespace trireme::testing
