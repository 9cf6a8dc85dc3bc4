// Whatever the order of the micro-batches' phases, the step is the same: to the bit, as each state's sum gets its terms
// in the same order.
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/training.h"
#include "trireme/compiler/compile.h"
#include "trireme/compiler/lowering.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string name;
  std::string model;
  std::string actions;
  std::string remat = "none";
  std::string offload = "none";
  int ranks = 1;
  int zero = 0;
  bool tied = false;
};

// Replaces the compiled step by one that is lowered in another order, and proves it as compilation does.
void reorder(train::Compiled& c, const std::string& actions, int threads) {
  program::LowerOptions options{
      .name = "step", .body = "micro", .tail = "update", .micro_batches = c.micro_batches, .threads = threads};
  options.actions = program::parse_actions(actions);
  train::Role& role = c.roles.front();
  program::Program& step = *std::find_if(role.programs.begin(), role.programs.end(),
                                         [](const program::Program& p) { return p.name == "step"; });
  step = compiler::lower(role.module, role.layout, options, c.plan);
  program::check(step);
  role.arena_bytes = std::max(role.arena_bytes, step.arena_bytes);
  for (int tier = 1; tier < program::kTiers; ++tier) {
    std::size_t& bytes = role.tier_bytes[static_cast<std::size_t>(tier)];
    bytes = std::max(bytes, step.bytes_in(tier));
  }
  compiler::check_roles(c);
}

class Actions : public ::testing::TestWithParam<Case> {};

TEST_P(Actions, TrainLikeThePlainOrder) {
  const Case& one = GetParam();
  train::Config config = one.offload == "none" ? small_model(one.model) : wider_model(one.model);
  config.train.batch = 6;
  config.train.micro_batch = 2;
  config.model.tie_embeddings = one.tied;
  if (one.model == "mlp") config.model.layers = 8;  // enough to recompute some
  config.memory.remat = one.remat;
  config.memory.offload = one.offload;
  config.memory.offload_policy = "all";
  if (one.ranks > 1) config = over_ranks(config, one.ranks, one.zero);
  Trained plain(config);
  ASSERT_EQ(plain.compiled().micro_batches, 3);
  Trained ordered(config, {.rework = [&](train::Compiled& c) { reorder(c, one.actions, 1); }});
  ASSERT_NE(plain.role().program("step").instructions.size(), 0U);
  plain.train(4);
  ordered.train(4);
  // A tied table's sum has terms of both kinds of gradients, which then come in another order.
  if (one.tied)
    expect_equal_training(plain, ordered, 2e-6);
  else
    expect_same_bits(plain, ordered);
}

std::vector<Case> cases() {
  const std::string held = "F0 F1 B0 F2 B1 B2 W0 W1 W2 U";  // weight gradients last
  const std::string all_forward = "F0 F1 F2 B0 B1 B2 U";
  const std::string mixed = "F0 F1 B0 W0 F2 B1 B2 W2 U";  // the second makes all its gradients at once
  std::vector<Case> all;
  for (const char* model : {"mlp", "gpt2", "resnet18"}) {
    const std::string name = model;
    all.push_back({name + "_weight_gradients_last", name, held});
    all.push_back({name + "_all_forward_first", name, all_forward});
    all.push_back({name + "_remat", name, held, "sqrt"});
  }
  all.push_back({"gpt2_remat_full", "gpt2", held, "full"});
  all.push_back({"gpt2_tied", "gpt2", held, "none", "none", 1, 0, true});
  all.push_back({"gpt2_mixed", "gpt2", mixed});
  all.push_back({"resnet18_mixed_remat", "resnet18", mixed, "sqrt"});
  all.push_back({"gpt2_offload", "gpt2", held, "none", "activations"});
  all.push_back({"gpt2_two_ranks", "gpt2", held, "none", "none", 2, 0});
  all.push_back({"resnet18_two_ranks", "resnet18", held, "none", "none", 2, 1});
  all.push_back({"gpt2_two_ranks_zero3", "gpt2", held, "full", "none", 2, 3});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Actions, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& one) { return one.param.name; });

// With weight gradients last, what they read of every micro-batch waits for them.
TEST(ActionOrder, MoreIsHeldWhereMoreIsUnderWay) {
  train::Config config = small_model("mlp");
  config.train.batch = 6;
  config.train.micro_batch = 2;
  Trained plain(config);
  Trained held(config, {.rework = [](train::Compiled& c) { reorder(c, "F0 F1 F2 B0 B1 B2 W0 W1 W2 U", 1); }});
  EXPECT_GT(held.role().program("step").lower_bound, plain.role().program("step").lower_bound);
}

}  // namespace
}  // namespace trireme::testing
