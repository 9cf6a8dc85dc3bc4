// Plans drawn at random from everything that a run can ask for train like one plain rank; those that change the
// mathematics train like their reference.
//
//   TRIREME_PLANS=300   draws that many (seeds 1, 2, …)
//   TRIREME_PLANS_FROM=101   … from that seed on
//   TRIREME_PLAN=17     draws seed 17 alone
//   TRIREME_PLAN_STEPS=4   … in as many steps
//   TRIREME_PLAN_OWN=3   … and says how far the reference is from itself after rounding errors, in as many draws
//   TRIREME_PLAN_WITH='parallel.zero=0;memory.remat=none'   … with these keys changed, to find which of them matters
//   TRIREME_PLAN_BOTH='memory.remat=full'   … and these, of the reference too
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "equivalence/compression_reference.h"
#include "equivalence/random_plan.h"
#include "support/larger.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::testing {
namespace {

std::uint32_t asked(const char* variable, std::uint32_t otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoi(value));
}

// What a plan has come to, beyond what was asked for.
void count(const train::Compiled& compiled, std::map<std::string, int>& used) {
  used["recomputed"] += compiled.plan.recompute.has_value();
  used["offloaded"] += compiled.tier_bytes(2) > 0;
  used["offloaded in an asynchronous pipeline"] += compiled.asynchronous_pipeline() && compiled.tier_bytes(2) > 0;
  used["three axes or more"] += std::count_if(compiled.mesh.axes.begin(), compiled.mesh.axes.end(),
                                              [](const ir::Mesh::Axis& axis) { return axis.size > 1; }) > 2;
}

// How far the reference is from itself when its weights start one rounding error away: of f32, and of its precision.
void show_own(const RandomPlan& plan, std::uint32_t draws) {
  const Trajectory reference = train_reference(plan);
  const auto precision = plan.config.train.precision;
  const double rounding = precision == train::Precision::bf16   ? 0x1p-9
                          : precision == train::Precision::fp16 ? 0x1p-12
                                                                : 0x1p-24;
  for (std::uint32_t draw = 1; draw <= draws; ++draw)
    for (const double by : {0x1p-24, rounding}) {
      const Difference own = compare(reference, train_reference(plan, {by, draw}), plan.tolerance);
      fmt::print("own, weights moved by {:.0e}: {:.3f} {:.3f} [{}]\n", by, own.loss, own.weights, own.worst);
    }
}

TEST(RandomPlans, TrainLikeOnePlainRank) {
  const std::uint32_t only = asked("TRIREME_PLAN", 0);
  const std::uint32_t first = only > 0 ? only : asked("TRIREME_PLANS_FROM", 1);
  const std::uint32_t plans = only > 0 ? 1 : asked("TRIREME_PLANS", 48);
  std::map<std::string, int> used;
  PlanTally tally;
  std::vector<std::string> refused;
  for (std::uint32_t seed = first; seed < first + plans; ++seed) {
    RandomPlan plan = draw_plan(seed);
    if (const char* with = std::getenv("TRIREME_PLAN_WITH"); with != nullptr)
      for (const std::string& setting : split(with, ';')) train::apply_setting(plan.config, setting);
    if (const char* both = std::getenv("TRIREME_PLAN_BOTH"); both != nullptr)
      for (const std::string& setting : split(both, ';'))
        for (train::Config* config : {&plan.config, &plan.reference}) train::apply_setting(*config, setting);
    plan.steps = asked("TRIREME_PLAN_STEPS", static_cast<std::uint32_t>(plan.steps));
    SCOPED_TRACE(plan.text);
    if (only > 0) {  // and it is known what crashes or hangs
      fmt::print("{}\n", plan.text);
      std::fflush(stdout);
    }
    if (const std::uint32_t draws = asked("TRIREME_PLAN_OWN", 0); draws > 0) show_own(plan, draws);
    std::optional<Trained> planned;
    try {
      if (plan.refusal) throw *plan.refusal;
      train::check(plan.config);
      planned.emplace(plan.config, testing::Setup{.threads = 2});
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request) << e.what();
      const std::string why = e.what();
      EXPECT_NE(why.find("nearest"), why.npos) << "says what works: " << why;
      refused.push_back(fmt::format("{}\n    {}", plan.text, e.what()));
      continue;
    }
    const Difference apart =
        compare(train_reference(plan), train_plan(*planned, plan.config, plan.steps), plan.tolerance);
    EXPECT_LE(apart.loss, 1) << "losses";
    EXPECT_LE(apart.weights, 1) << apart.worst;
    if (std::getenv("TRIREME_PLANS_SHOWN") != nullptr)
      fmt::print("{:.3f} {:.3f} {} [{}]\n", apart.loss, apart.weights, plan.text, apart.worst);
    count(planned->compiled(), used);
    tally.add(plan.choices);
    if (HasFatalFailure()) return;
  }
  if (only == 0) tally.print();
  for (const auto& [what, times] : used) fmt::print("{:>4} plans with {}\n", times, what);
  for (const std::string& why : refused) fmt::print("refused: {}\n", why);
  fmt::print("{} of {} plans refused\n", refused.size(), plans);
  if (only > 0) return;
  EXPECT_LT(refused.size() * 10, plans);
  if (plans < 300) return;  // too few to have some of everything
  for (const std::string& what : tally.missing()) ADD_FAILURE() << what << " was never drawn";
  for (const auto& [what, times] : used) EXPECT_GT(times, 0) << what;
}

// No comparison with what is no number is ever true, and none of them may pass.
TEST(RandomPlans, WhatIsNoNumberIsTooFar) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Trajectory sound = {{3, 2, 1}, {{"a", {1, 1}}, {"b", {2, 2}}}, {{"a", {1.5F, 1}}, {"b", {2, 2.5F}}}};
  EXPECT_EQ(compare(sound, sound, {}).most(), 0);
  for (std::size_t at = 0; at < sound.losses.size(); ++at) {
    Trajectory bad = sound;
    bad.losses[at] = static_cast<double>(nan);
    EXPECT_FALSE(compare(sound, bad, {}).loss <= 1) << at;
    EXPECT_FALSE(compare(bad, sound, {}).loss <= 1) << at;
  }
  for (const char* name : {"a", "b"})
    for (std::size_t at = 0; at < 2; ++at) {
      Trajectory bad = sound;
      bad.weights.at(name)[at] = nan;
      EXPECT_FALSE(compare(sound, bad, {}).weights <= 1) << name << at;
    }
  for (const double worse : {larger(0, NAN), larger(NAN, 0), larger(NAN, 1e9)}) EXPECT_TRUE(std::isnan(worse));
  EXPECT_EQ(larger(1, 2), 2);
  EXPECT_EQ(larger(2, 1), 2);
}

// What was not compared does not agree: runs without steps, without weights, or with some missing.
TEST(RandomPlans, ASkippedComparisonIsTooFar) {
  const Trajectory sound = {{3}, {{"a", {1}}, {"b", {1}}}, {{"a", {2}}, {"b", {2}}}};
  EXPECT_LE(compare(sound, sound, {}).most(), 1);
  EXPECT_GT(compare({}, {}, {}).most(), 1);
  Trajectory less = sound;
  less.losses.clear();
  EXPECT_GT(compare(less, less, {}).most(), 1);
  less = sound;
  less.weights.clear();
  EXPECT_GT(compare(less, less, {}).most(), 1);
  less = sound;
  less.weights.erase("b");
  EXPECT_GT(compare(sound, less, {}).most(), 1);
  Trained trained(small_model("mlp"));
  EXPECT_GT(weight_error(trained, {}), 1) << "a reference that computed nothing";
}

// A comparison that passes whatever a plan does shows nothing.
TEST(RandomPlans, ASkippedUpdateAndAScaledGradientAreFound) {
  std::map<std::string, int> planted;
  for (std::uint32_t seed = 1; seed < 200 && planted.size() < 10; ++seed) {
    const RandomPlan plan = draw_plan(seed);
    // Of AdamW a gradient's scale is hardly seen, and a scaled position of topk would be out of bounds.
    if (plan.refusal || plan.asynchronous_pipeline || plan.choices.has("compress=topk:0.2") ||
        !plan.config.memory.offload.none() || plan.config.train.optimizer != train::Optimizer::sgd)
      continue;
    const std::string kind = fmt::format("{} {} {}", plan.config.model.family, plan.config.train.precision,
                                         plan.choices.has("compress!=none") ? "compressed" : "");
    if (planted[kind]++ > 0) continue;
    SCOPED_TRACE(plan.text);
    const Trajectory reference = train_reference(plan);
    for (const auto& [fault, plant] : planted_faults()) {
      std::optional<Trained> faulty;
      try {
        faulty.emplace(plan.config, testing::Setup{.threads = 2, .rework = plant});
      } catch (const Error&) {
        break;  // refused
      }
      const Difference apart = compare(reference, train_plan(*faulty, plan.config, plan.steps), plan.tolerance);
      EXPECT_GT(apart.weights, 1) << fault << " is not found";
    }
  }
  EXPECT_GE(planted.size(), 8U);
}

}  // namespace
}  // namespace trireme::testing
