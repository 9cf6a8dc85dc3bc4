// What is recomputed is what was computed: every policy trains like the plain step.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "equivalence/training.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string policy;
  std::string precision;
  int micro_batches;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.model << " " << c.policy; }

// A layer of the perceptron keeps its output alone, which is the next one's input.
bool forgets_nothing(const std::string& model, const std::string& policy) {
  return model == "mlp" && (policy == "every:1" || policy == "full" || policy == "selective");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : small_models())
    for (const char* policy : {"every:1", "every:2", "sqrt", "selective", "optimal", "full"})
      for (const char* precision : {"f32", "bf16"})
        for (const int micro_batches : {1, 4})
          if (!forgets_nothing(model, policy)) all.push_back({model, policy, precision, micro_batches});
  return all;
}

train::Config configured(const Case& c) {
  train::Config config = small_model(c.model);
  config.train.precision = c.precision;
  config.train.micro_batch = config.train.batch / c.micro_batches;
  config.model.dropout = 0.2;
  if (c.model == "mlp") config.model.layers = 6;
  return config;
}

bool recomputes(const Trained& t) {
  const auto& nodes = t.role().module.graph("micro").nodes;
  return std::any_of(nodes.begin(), nodes.end(), [](const ir::Node& node) { return node.barrier; });
}

class Remat : public ::testing::TestWithParam<Case> {};

TEST_P(Remat, TrainsLikeThePlainStep) {
  train::Config config = configured(GetParam());
  Trained plain(config, {.threads = 2});
  config.memory.remat = GetParam().policy;
  Trained again(config, {.threads = 2});
  // The best for a shallow model may be to forget nothing: then it takes as much memory as the plain step.
  if (!recomputes(again)) {
    EXPECT_EQ(GetParam().policy, "optimal");
    EXPECT_EQ(again.compiled().arena_bytes(), plain.compiled().arena_bytes());
  }
  plain.train(4);
  again.train(4);
  EXPECT_EQ(again.session().highest_offset(), again.compiled().arena_bytes());
  if (GetParam().precision == "f32")
    expect_same_bits(plain, again);
  else
    expect_equal_training(plain, again, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, Remat, ::testing::ValuesIn(cases()), [](const auto& one) {
  std::string name = one.param.model + "_" + one.param.policy + "_" + one.param.precision + "_" +
                     std::to_string(one.param.micro_batches);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

TEST(RematPolicies, ThatDoNotApplySaySo) {
  for (const char* policy : {"every:1", "full", "selective", "every:9"}) {
    train::Config config = small_model("mlp");
    config.memory.remat = policy;
    try {
      const Trained t(config);
      ADD_FAILURE() << policy;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request);
      EXPECT_NE(std::string(e.what()).find(std::string("memory.remat = \"") + policy), std::string::npos) << e.what();
    }
  }
}

// Within a limit, no more is made again than must be: of a segment's cheap values those that free most for their time.
TEST(RematWithin, MakesSomeOfWhatIsCheapAgain) {
  train::Config config = wider_model("gpt2");
  config.model.layers = 4;
  config.train.batch = config.train.micro_batch = 16;
  static const train::Registry registry;
  const auto peak = [&](const std::string& policy) {
    train::Config changed = config;
    changed.memory.remat = policy;
    return train::compile(changed, registry, {.threads = 2}).arena_bytes();
  };
  const std::size_t most = peak("none");
  const std::size_t least = peak("selective");
  ASSERT_LT(least, most);
  Trained plain(config, {.threads = 2});
  plain.train(2);
  config.memory.remat = "optimal";
  bool some = false;
  for (const std::size_t eighths : {7, 6, 4}) {
    config.memory.limit.count = least + (most - least) * eighths / 8;
    Trained again(config, {.threads = 2});
    again.train(2);
    expect_same_bits(plain, again);
    EXPECT_EQ(again.session().highest_offset(), again.compiled().arena_bytes());
    EXPECT_LE(again.compiled().arena_bytes(), config.memory.limit.count);
    std::map<std::string, int> nodes;
    for (const ir::Node& node : again.role().module.graph("micro").nodes)
      if (node.barrier) ++nodes[node.op->name];
    some = some || (nodes["gelu"] > 0 && nodes["layer_norm"] == 0);
  }
  EXPECT_TRUE(some);
}

}  // namespace
}  // namespace trireme::testing
