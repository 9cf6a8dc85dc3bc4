#include "trireme/cli/equal_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::cli {
namespace {

TEST(EqualLosses, TheLargestDifferenceCounts) {
  const std::vector<double> a = {3, 2, 1};
  EXPECT_EQ(largest_difference(a, a), 0);
  EXPECT_EQ(largest_difference(a, std::vector<double>{3, 2.5}), 0.5);
  EXPECT_EQ(judge(a, std::vector<double>{3, 2, 1 + 1e-6}, 1e-4).text, "losses differ by at most 1e-06 ✓");
  const Verdict far = judge(a, std::vector<double>{3, 2.5, 1}, 1e-4);
  EXPECT_EQ(far.kind, Verdict::Kind::unequal);
  EXPECT_NE(far.text.find("✗"), std::string::npos) << far.text;
}

// What a rounding error makes of the plain losses says how far apart others may be: in each step by itself.
TEST(EqualLosses, ConditioningIsMeasuredAndNotAssumed) {
  const std::vector<double> one = {2, 2, 2};
  const std::vector<double> own = {1e-7, 1e-4, 1e-3};
  const auto kind = [&](const std::vector<double>& several) { return judge(one, several, 1e-5, own).kind; };
  EXPECT_EQ(kind({2, 2 + 5e-4, 2 + 5e-3}), Verdict::Kind::equal);
  EXPECT_EQ(kind({2, 2 + 5e-3, 2 + 5e-3}), Verdict::Kind::unequal) << "more than ten times one rank's own";
  EXPECT_EQ(kind({2 + 1e-4, 2, 2}), Verdict::Kind::unequal) << "a step that rounding hardly changes";
  EXPECT_EQ(kind({2, 2, std::numeric_limits<double>::quiet_NaN()}), Verdict::Kind::unequal);
  // Where rounding alone changes all, a step says nothing; where it does so in every step, there is no verdict.
  const std::vector<double> later = {1e-7, 1e-4, 0.5};
  const Verdict some = judge(one, std::vector<double>{2, 2, 3}, 1e-5, later);
  EXPECT_EQ(some.kind, Verdict::Kind::equal);
  EXPECT_NE(some.text.find("2 of 3 steps"), std::string::npos) << some.text;
  const Verdict none = judge(one, std::vector<double>{2, 2, 3}, 1e-5, std::vector<double>{0.5, 0.5, 0.5});
  EXPECT_EQ(none.kind, Verdict::Kind::open);
  EXPECT_EQ(none.text.find("✓"), std::string::npos) << none.text;
}

// One rank that rounds otherwise is as far from itself as the ranks are: in the order of its rows, before losses cross,
// or in a draw that comes late.
TEST(EqualLosses, ProbesOfEveryKindAreTakenBeforeLossesAreCalledUnequal) {
  const std::vector<double> one = {2, 2, 2};
  const std::vector<double> several = {2, 2 + 5e-4, 2 + 5e-4};
  const std::vector<Probe::Kind> both = {Probe::Kind::weights, Probe::Kind::rows};
  std::vector<Probe> taken;
  const auto kind = [&](const std::vector<Probe::Kind>& kinds, const auto& losses) {
    taken.clear();
    return judge_by_probes(one, several, 1e-5, kinds,
                           [&](const Probe& probe) {
                             taken.push_back(probe);
                             return std::vector<double>(losses(probe));
                           })
        .kind;
  };
  const std::vector<double> near = {2, 2 + 1e-7, 2 + 1e-7}, far = {2, 2 + 1e-4, 2 - 1e-4}, crossed = {2, 2 + 1e-4, 2};
  EXPECT_EQ(kind(both, [&](const Probe&) { return far; }), Verdict::Kind::equal);
  EXPECT_EQ(taken.size(), 2 * kUsualProbes);
  EXPECT_EQ(kind(both, [&](const Probe&) { return near; }), Verdict::Kind::unequal);
  EXPECT_EQ(taken.size(), 2 * kMaxProbes);
  // Rows alone change much.
  const auto rows = [&](const Probe& probe) { return probe.kind == Probe::Kind::rows ? far : near; };
  EXPECT_EQ(kind(both, rows), Verdict::Kind::equal);
  EXPECT_EQ(kind({Probe::Kind::weights}, rows), Verdict::Kind::unequal);
  // What has parted once may meet again by chance.
  EXPECT_EQ(kind(both, [&](const Probe&) { return crossed; }), Verdict::Kind::equal);
  // The last draw of all.
  const auto late = [&](const Probe& probe) { return probe.draw == kMaxProbes ? far : near; };
  EXPECT_EQ(kind(both, late), Verdict::Kind::equal);
  EXPECT_EQ(taken.size(), 2 * kMaxProbes);
}

// A replay that goes wrong, or compares nothing, gets no tick.
TEST(EqualLosses, WhatIsNoNumberIsNotEqual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> sound = {3, 2, 1};
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::vector<double> bad = sound;
    bad[at] = nan;
    for (const double difference : {largest_difference(sound, bad), largest_difference(bad, sound)}) {
      EXPECT_TRUE(std::isnan(difference));
    }
    for (const Verdict& verdict : {judge(sound, bad, 1e-4), judge(bad, sound, 1e-4), judge(sound, bad, 1e-4, sound)}) {
      EXPECT_EQ(verdict.kind, Verdict::Kind::unequal);
      EXPECT_EQ(verdict.text.find("✓"), std::string::npos) << verdict.text;
    }
  }
  EXPECT_EQ(judge(sound, {}, 1e-4).text.find("✓"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
