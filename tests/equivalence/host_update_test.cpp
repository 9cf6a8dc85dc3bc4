// An update by the host's cores is the same update. The programs that a GPU's run would have, with the CPU as the
// device: its memory and the host's are two blocks of the same, and kernels are the same on either side, so that all of
// the state must agree to the bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/training.h"
#include "trireme/compiler/lowering.h"
#include "trireme/passes/offload.h"
#include "trireme/passes/validate.h"
#include "trireme/planner/offload_policy.h"
#include "trireme/program/check.h"
#include "trireme/program/lower.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string name;
  std::string precision = "bf16";
  int micro_batches = 1;
  std::string optimizer = "adamw";
  bool weights = false;      // leave too, and gradients with them
  bool activations = false;  // leave too
  int ranks = 1;
  int zero = 0;
  double loss_scale = 65536;
};

// Replaces what was compiled by the same with optimizer states in the host's memory.
void update_on_host(train::Compiled& c, const Case& one, int threads) {
  train::Role& role = c.roles.front();
  const planner::OffloadPolicy policy{
      .activations = one.activations, .weights = one.weights, .optimizer = true, .smallest = std::size_t{16} << 10};
  passes::Offload::Options offload{.states = planner::states_to_offload(role.module, policy),
                                   .tier = program::kHostTier,
                                   .update_on_host = true,
                                   .piece = std::size_t{1} << 20};
  if (one.activations) offload.activations = planner::activations_to_offload(role.module.graph("micro"), policy);
  passes::Pipeline pipeline;
  pipeline.add<passes::Offload>(offload);
  pipeline.add<passes::Validate>();
  pipeline.run(role.module);
  role.layout = program::lay_out(role.module);
  role.arena_bytes = 0;
  for (program::Program& p : role.programs) {
    const bool step = p.name == "step";
    program::LowerOptions options{
        .name = p.name, .body = step ? "micro" : p.name, .tail = step ? "update" : "", .threads = threads};
    if (step) options.micro_batches = c.micro_batches;
    p = compiler::lower(role.module, role.layout, options, c.plan);
    program::check(p);
    role.arena_bytes = std::max(role.arena_bytes, p.arena_bytes);
    std::size_t& host = role.tier_bytes[program::kHostTier];
    host = std::max(host, p.bytes_in(program::kHostTier));
  }
}

train::Config config_of(const Case& one) {
  train::Config config = wider_model("gpt2");
  config.train.precision = one.precision;
  config.train.micro_batch = config.train.batch / one.micro_batches;
  config.train.optimizer = one.optimizer;
  config.train.loss_scale = one.loss_scale;
  return one.ranks == 1 ? config : over_ranks(config, one.ranks, one.zero);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* precision : {"f32", "bf16"})
    for (const int micro_batches : {1, 4})
      for (const char* optimizer : {"adamw", "sgd"})
        all.push_back({.name = std::string(precision) + "_" + optimizer + "_" + std::to_string(micro_batches),
                       .precision = precision,
                       .micro_batches = micro_batches,
                       .optimizer = optimizer});
  all.push_back({.name = "fp16", .precision = "fp16"});
  all.push_back({.name = "weights_too", .micro_batches = 2, .weights = true});
  all.push_back({.name = "everything", .weights = true, .activations = true});
  const std::vector<std::pair<int, std::string>> ranks = {
      {0, "bf16"}, {1, "f32"}, {1, "bf16"}, {2, "f32"}, {3, "bf16"}};
  for (const auto& [zero, precision] : ranks)
    all.push_back({.name = "zero_" + std::to_string(zero) + "_" + precision,
                   .precision = precision,
                   .micro_batches = 2,
                   .ranks = 2,
                   .zero = zero});
  return all;
}

class HostUpdate : public ::testing::TestWithParam<Case> {};

TEST_P(HostUpdate, TrainsToTheBitAndAsPlanned) {
  const train::Config config = config_of(GetParam());
  Trained plain(config, {.threads = 2});
  Trained hosted(config, {.threads = 2, .rework = [](train::Compiled& c) { update_on_host(c, GetParam(), 2); }});
  plain.train(2);
  hosted.train(2);
  expect_same_bits(plain, hosted);
  const data::Batch rows = batch_of(config, 9);
  EXPECT_EQ(plain.session().evaluate(rows), hosted.session().evaluate(rows));
  EXPECT_EQ(hosted.session().highest_offset(), hosted.compiled().arena_bytes());
  EXPECT_EQ(hosted.session().highest_offset(program::kHostTier), hosted.compiled().tier_bytes(program::kHostTier));
}

INSTANTIATE_TEST_SUITE_P(All, HostUpdate, ::testing::ValuesIn(cases()), [](const auto& one) { return one.param.name; });

std::size_t moved_in_update(const program::Program& p, program::Instruction::Kind kind) {
  std::size_t bytes = 0;
  for (const program::Instruction& i : p.instructions)
    if (i.kind == kind) bytes += i.outputs.front().type.bytes();
  return bytes;
}

// What crosses the link are gradients, scalars and the low-precision copies.
TEST(HostUpdate, MovesTwoBytesAParameterEachWay) {
  const Case one{.name = "bf16"};
  const Trained hosted(config_of(one), {.rework = [&](train::Compiled& c) { update_on_host(c, one, 1); }});
  const train::Role& c = hosted.role();
  std::size_t parameters = 0;
  for (const ir::State& state : c.module.states)
    if (state.trained && state.tier == program::kHostTier)
      parameters += static_cast<std::size_t>(state.type.elements());
  ASSERT_GT(parameters, 0U);
  const std::size_t scalars = 4 * sizeof(float);
  EXPECT_EQ(moved_in_update(c.program("step"), program::Instruction::Kind::store), 2 * parameters + scalars);
  EXPECT_EQ(moved_in_update(c.program("step"), program::Instruction::Kind::load), 2 * parameters);
  // Its states, and a place for each gradient, which the new weights take over.
  EXPECT_LE(c.tier_bytes[program::kHostTier], 14 * parameters + (std::size_t{1} << 20));
}

// Gradients leave while the backward pass runs, and their memory with them.
TEST(HostUpdate, GradientsLeaveDuringTheBackwardPass) {
  const Case one{.name = "bf16"};
  const Trained hosted(config_of(one), {.rework = [&](train::Compiled& c) { update_on_host(c, one, 1); }});
  const std::vector<program::Instruction>& all = hosted.role().program("step").instructions;
  const auto last_gradient = std::find_if(all.rbegin(), all.rend(), [](const program::Instruction& i) {
    return i.stream == 0 && i.phase == ir::Phase::weight_gradient && i.op->name != "sum_squares";
  });
  const auto first_launch =
      std::find_if(all.begin(), all.end(), [](const program::Instruction& i) { return i.on_host; });
  ASSERT_NE(first_launch, all.end());
  int before = 0;
  int after = 0;
  for (auto i = all.begin(); i != first_launch; ++i)
    if (i->kind == program::Instruction::Kind::store && i->outputs.front().type.bytes() > sizeof(float))
      ++(i < last_gradient.base() ? before : after);
  EXPECT_GT(before, 4 * after);
}

// A step that overflows leaves the states on the host as they were.
TEST(HostUpdate, StepsThatAreNotFiniteChangeNothing) {
  const Case one{.name = "fp16", .precision = "fp16", .loss_scale = 0x1p31};
  Trained plain(config_of(one), {.threads = 2});
  Trained hosted(config_of(one), {.threads = 2, .rework = [&](train::Compiled& c) { update_on_host(c, one, 2); }});
  const auto before = hosted.state();
  EXPECT_FALSE(plain.step().finite);
  EXPECT_FALSE(hosted.step().finite);
  const auto after = hosted.state();
  for (const auto& [name, values] : before) {
    if (name.starts_with("loss_scale")) continue;
    EXPECT_EQ(values, after.at(name)) << name;
  }
  expect_same_state(plain, hosted);
}

// The search for what went bad looks at what the host makes too.
TEST(HostUpdate, CanBeLookedAt) {
  const Case one{.name = "bf16"};
  const train::Config config = config_of(one);
  Trained hosted(config, {.rework = [&](train::Compiled& c) { update_on_host(c, one, 1); }});
  EXPECT_FALSE(hosted.session().explain(batch_of(config, 0), 0, 1e-3, 1).has_value());
}

}  // namespace
}  // namespace trireme::testing
