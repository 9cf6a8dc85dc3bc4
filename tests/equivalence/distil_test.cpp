// A student and its teacher in one graph, on any mesh like on one rank.
#include "trireme/train/distil.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/training.h"
#include "support/source_dir.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

train::Config student() {
  train::Config config = small_model("gpt2");
  config.model.vocab = 67;
  config.model.context = 16;
  config.distil.teacher = source_dir() + "/tests/reference/distil_teacher";
  config.distil.hidden = 0.3;
  train::check(config);
  return config;
}

train::Config staged_student(double hidden) {
  train::Config config = student();
  config.distil.hidden = hidden;
  config.train.micro_batch = config.train.batch / 2;
  return config;
}

struct Taught {
  Trained trained;
  explicit Taught(const train::Config& config) : trained(config) { trained.train(3); }
};

struct Way {
  std::string mesh;
  int zero = 0;
  std::string setting = "";
};

// Ranks share key heads, and have scores of unequal numbers of words.
TEST(DistilKeyHeads, FewerThanRanksTrainLikeOne) {
  train::Config config = small_model("llama");
  config.model.vocab = 67;
  config.model.context = 16;
  config.distil.teacher = source_dir() + "/tests/reference/distil_teacher";
  ASSERT_EQ(config.model.kv_heads, 2);
  Taught one(config);
  Taught many(over_mesh(config, "tp=4"));
  expect_equal_training(one.trained, many.trained, 2e-5);
}

class Distil : public ::testing::TestWithParam<Way> {};

TEST_P(Distil, RanksTrainLikeOne) {
  Taught one(student());
  train::Config config = student();
  if (!GetParam().setting.empty()) train::apply_setting(config, GetParam().setting);
  Taught many(over_mesh(config, GetParam().mesh, GetParam().zero));
  expect_equal_training(one.trained, many.trained, 2e-5);
  for (const ir::State& state : many.trained.role().module.states)
    if (state.name.starts_with("teacher.") && state.type.shape.rank() > 0 && GetParam().zero == 3) {
      EXPECT_LT(state.type.elements(), state.global_shape().elements()) << state.name << " is whole on every rank";
    }
}
INSTANTIATE_TEST_SUITE_P(Ways, Distil,
                         ::testing::Values(Way{"dp=2"}, Way{"dp=2", 1}, Way{"dp=2", 3}, Way{"dp=4", 3}, Way{"tp=2"},
                                           Way{"dp=2,tp=2", 1}, Way{"dp=1", 0, "memory.offload=all"},
                                           Way{"dp=2", 0, "parallel.server=sync"}, Way{"dp=1", 0, "memory.remat=full"}),
                         [](const auto& given) {
                           std::string name =
                               fmt::format("{}_zero{}_{}", given.param.mesh, given.param.zero, given.param.setting);
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

// Stages share the student's layers, and the teacher's with them.
TEST(DistilStages, TrainLikeOneRank) {
  for (const double hidden : {0.0, 0.3}) {
    Taught one(staged_student(hidden));
    for (const auto& [mesh, zero] : {std::pair{"pp=2", 0},
                                     {"pp=2,dp=2", 0},
                                     {"tp=2,pp=2", 0},
                                     {"pp=2,dp=2", 1},
                                     {"pp=2,dp=2", 2},
                                     {"pp=2,dp=2", 3}}) {
      SCOPED_TRACE(fmt::format("{} zero {} hidden {}", mesh, zero, hidden));
      Taught many(over_mesh(staged_student(hidden), mesh, zero));
      expect_equal_training(one.trained, many.trained, 2e-5);
      for (const train::Role& role : many.trained.compiled().roles) {
        const bool any = std::any_of(role.module.states.begin(), role.module.states.end(),
                                     [](const ir::State& state) { return state.name.starts_with("teacher.blocks."); });
        EXPECT_TRUE(any) << role.name << " has no layer of the teacher";
      }
    }
  }
}

// Layers that a user lists are the student's, wherever the teacher's are made.
TEST(DistilStages, ListedLayersAreTheStudents) {
  for (const double hidden : {0.0, 0.3})
    for (const std::vector<std::int64_t>& stages : {std::vector<std::int64_t>{1, 2}, {2, 1}}) {
      SCOPED_TRACE(fmt::format("hidden {} stages {},{}", hidden, stages[0], stages[1]));
      train::Config config = staged_student(hidden);
      config.model.layers = 3;
      Taught one(config);
      config.parallel.stages = stages;
      Taught many(over_mesh(config, "pp=2"));
      expect_equal_training(one.trained, many.trained, 2e-5);
      for (int layer = 0; layer < 3; ++layer) {
        const ir::Module& module = many.trained.compiled().roles[layer < stages[0] ? 0 : 1].module;
        EXPECT_NE(module.find_state(fmt::format("blocks.{}.mlp.up.weight", layer)), ir::kNone) << layer;
      }
    }
}

// A teacher's heads and neurons make groups as well, of which none is pruned.
TEST(DistilPruning, SlicesAreTheStudents) {
  for (const char* pattern : {"heads", "neurons"}) {
    SCOPED_TRACE(pattern);
    train::Config config = student();
    config.prune.method = "magnitude";
    config.prune.pattern = pattern;
    config.prune.schedule = "oneshot";
    config.prune.begin = 1;
    Taught one(config);
    Taught many(over_mesh(config, "dp=2"));
    expect_equal_training(one.trained, many.trained, 2e-5);
    const auto state = one.trained.state();
    const std::string pruned = std::string(pattern) == "heads" ? "blocks.0.attn.qkv.weight" : "blocks.0.mlp.up.weight";
    EXPECT_GT(std::count(state.at(pruned).begin(), state.at(pruned).end(), 0.0F), 0);
    for (const auto& [name, values] : state)
      EXPECT_FALSE(name.starts_with("teacher.") && name.ends_with("/mask")) << name;
  }
}

TEST(DistilCheck, RefusesByKey) {
  const auto refused = [](const train::Config& config) {
    try {
      const train::Registry registry;
      train::compile(config, registry, {});
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("nothing");
  };
  train::Config config = student();
  config.model.vocab = 66;
  EXPECT_NE(refused(config).find("distil.teacher"), std::string::npos) << refused(config);
  EXPECT_NE(refused(config).find("model.vocab = 66"), std::string::npos) << refused(config);
  config = student();
  config.distil.teacher = "nowhere";
  EXPECT_NE(refused(config).find("distil.teacher = \"nowhere\""), std::string::npos) << refused(config);
  config = student();
  config.model.context = 32;
  EXPECT_NE(refused(config).find("model.context = 32"), std::string::npos) << refused(config);
}

}  // namespace
}  // namespace trireme::testing
