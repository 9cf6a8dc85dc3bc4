// Plans drawn at random from everything that a run can ask for train like one plain rank; those that change the
// mathematics train like their reference.
//
//   TRIREME_PLANS=300   draws that many (seeds 1, 2, …)
//   TRIREME_PLANS_FROM=101   … from that seed on
//   TRIREME_PLAN=17     draws seed 17 alone
//   TRIREME_PLAN_STEPS=4   … in as many steps
//   TRIREME_PLAN_OWN=3   … and says how far the reference is from itself after rounding errors, in as many draws
//   TRIREME_PLAN_WITH='parallel.zero=0;memory.remat=none'   … with these keys changed, to find which of them matters
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
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

// What a plan has come to.
void count(const train::Config& config, const train::Compiled& compiled, std::map<std::string, int>& used) {
  for (const ir::Mesh::Axis& axis : compiled.mesh.axes) used[axis.name] += axis.size > 1;
  used["recomputed"] += compiled.plan.recompute.has_value();
  used["offloaded"] += compiled.tier_bytes(2) > 0;
  used["compressed"] += compiled.plan.compress.has_value();
  used["servers"] += compiled.plan.server.has_value();
  used["asynchronous stages"] += compiled.asynchronous_pipeline();
  used["smaller messages"] += compiled.plan.messages.has_value();
  used["a schedule of one's own"] += compiled.plan.pipeline.kind == program::PipelineName::Kind::file;
  used["zero-bubble:auto"] += compiled.plan.stages() > 1 && config.parallel.pipeline.text() == "zero-bubble:auto";
  used["a limit"] += config.memory.limit.count > 0;
  used["async_tp"] += compiled.plan.async_tp;
  used["compressed and sharded states"] += compiled.plan.compress.has_value() && compiled.plan.zero > 0;
  used["offloaded in an asynchronous pipeline"] += compiled.asynchronous_pipeline() && compiled.tier_bytes(2) > 0;
  used["compressed pushes"] += compiled.plan.compress.has_value() && compiled.plan.server.has_value();
  used["pruned"] += compiled.plan.prune.has_value();
  used["documents"] += config.model.document_end >= 0;
  used["a teacher"] += !config.distil.teacher.empty();
  used["rounded weights"] += compiled.plan.rounded.has_value();
  used["16 bits"] += config.train.precision != train::Precision::f32;
  used["16 bits and sharded matrices"] +=
      config.train.precision != train::Precision::f32 && compiled.mesh.size_of(ir::kTensorAxis) > 1;
  used["8 bits"] += config.train.precision == train::Precision::fp8;
  used["three ranks or more along tp"] += compiled.mesh.size_of(ir::kTensorAxis) > 2;
  used["four stages"] += compiled.plan.stages() == 4;
  used["compressed and sharded matrices"] +=
      compiled.plan.compress.has_value() && compiled.mesh.size_of(ir::kTensorAxis) > 1;
  used["compressed and sharded images"] += compiled.plan.compress.has_value() && compiled.plan.is_spatial();
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
  const std::uint32_t plans = only > 0 ? 1 : asked("TRIREME_PLANS", 36);
  std::map<std::string, int> used;
  std::vector<std::string> refused;
  for (std::uint32_t seed = first; seed < first + plans; ++seed) {
    RandomPlan plan = draw_plan(seed);
    if (const char* with = std::getenv("TRIREME_PLAN_WITH"); with != nullptr)
      for (const std::string& setting : split(with, ';')) train::apply_setting(plan.config, setting);
    plan.steps = asked("TRIREME_PLAN_STEPS", static_cast<std::uint32_t>(plan.steps));
    SCOPED_TRACE(plan.text);
    if (const std::uint32_t draws = asked("TRIREME_PLAN_OWN", 0); draws > 0) show_own(plan, draws);
    std::optional<Trained> planned;
    try {
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
    count(plan.config, planned->compiled(), used);
    if (HasFatalFailure()) return;
  }
  for (const auto& [what, times] : used) fmt::print("{:>4} plans with {}\n", times, what);
  for (const std::string& why : refused) fmt::print("refused: {}\n", why);
  if (only > 0) return;
  EXPECT_LT(refused.size() * 10, plans);
  if (plans < 60) return;  // too few to have some of everything
  for (const char* what : {"pp",
                           "dp",
                           "tp",
                           "h",
                           "w",
                           "recomputed",
                           "offloaded",
                           "compressed",
                           "servers",
                           "asynchronous stages",
                           "smaller messages",
                           "a schedule of one's own",
                           "zero-bubble:auto",
                           "a limit",
                           "16 bits",
                           "async_tp",
                           "compressed and sharded states",
                           "offloaded in an asynchronous pipeline",
                           "pruned",
                           "documents",
                           "a teacher",
                           "rounded weights",
                           "16 bits and sharded matrices",
                           "8 bits",
                           "three ranks or more along tp",
                           "four stages"})
    EXPECT_GE(used[what] * 40, static_cast<int>(plans)) << what;
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
    // Of AdamW a gradient's scale is hardly seen.
    if (plan.asynchronous_pipeline || !plan.config.memory.offload.none() ||
        plan.config.train.optimizer != train::Optimizer::sgd)
      continue;
    const std::string kind = fmt::format("{} {} {}", plan.config.model.family, plan.config.train.precision,
                                         plan.technique == "compress" ? "compressed" : "");
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
