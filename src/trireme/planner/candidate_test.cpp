#include "trireme/planner/candidate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace trireme::planner {
namespace {

// Four layers, eight rows, and nothing else to choose.
Space small(int ranks) {
  Space space;
  space.ranks = ranks;
  space.batch = 8;
  space.layers = 4;
  space.max_tp = 2;
  space.zero = {0};
  space.pipelines = {program::parse_pipeline("1f1b"), program::parse_pipeline("interleaved:2"),
                     program::parse_pipeline("zero-bubble")};
  space.remat = {RematPolicy::Kind::none};
  space.sequence = {false};
  return space;
}

std::vector<std::string> described(const Space& space) {
  std::vector<std::string> all;
  for (const Candidate& c : enumerate(space)) {
    EXPECT_EQ(c.ranks(), space.ranks);
    all.push_back(describe(c));
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> sorted(std::vector<std::string> all) {
  std::sort(all.begin(), all.end());
  return all;
}

// Two stages of two layers may have two chunks each; four stages of one layer may not. A pipeline with one micro-batch
// has nothing to order, and needs no more than the first schedule.
TEST(Enumerate, FourRanks) {
  EXPECT_EQ(described(small(4)), sorted({
                                     "dp=4 · micro-batch 1",
                                     "dp=4 · micro-batch 2",
                                     "pp=2,dp=2 · 1f1b · micro-batch 1",
                                     "pp=2,dp=2 · interleaved:2 · micro-batch 1",
                                     "pp=2,dp=2 · zero-bubble · micro-batch 1",
                                     "pp=2,dp=2 · 1f1b · micro-batch 2",
                                     "pp=2,dp=2 · interleaved:2 · micro-batch 2",
                                     "pp=2,dp=2 · zero-bubble · micro-batch 2",
                                     "pp=2,dp=2 · 1f1b · micro-batch 4",
                                     "pp=4 · 1f1b · micro-batch 1",
                                     "pp=4 · zero-bubble · micro-batch 1",
                                     "pp=4 · 1f1b · micro-batch 2",
                                     "pp=4 · zero-bubble · micro-batch 2",
                                     "pp=4 · 1f1b · micro-batch 4",
                                     "pp=4 · zero-bubble · micro-batch 4",
                                     "pp=4 · 1f1b · micro-batch 8",
                                     "dp=2,tp=2 · micro-batch 1",
                                     "dp=2,tp=2 · micro-batch 2",
                                     "dp=2,tp=2 · micro-batch 4",
                                     "pp=2,tp=2 · 1f1b · micro-batch 1",
                                     "pp=2,tp=2 · interleaved:2 · micro-batch 1",
                                     "pp=2,tp=2 · zero-bubble · micro-batch 1",
                                     "pp=2,tp=2 · 1f1b · micro-batch 2",
                                     "pp=2,tp=2 · interleaved:2 · micro-batch 2",
                                     "pp=2,tp=2 · zero-bubble · micro-batch 2",
                                     "pp=2,tp=2 · 1f1b · micro-batch 4",
                                     "pp=2,tp=2 · interleaved:2 · micro-batch 4",
                                     "pp=2,tp=2 · zero-bubble · micro-batch 4",
                                     "pp=2,tp=2 · 1f1b · micro-batch 8",
                                 }));
}

// No more stages than layers, and tp within a node.
TEST(Enumerate, EightRanks) {
  EXPECT_EQ(described(small(8)), sorted({
                                     "dp=8 · micro-batch 1",
                                     "pp=2,dp=4 · 1f1b · micro-batch 1",
                                     "pp=2,dp=4 · interleaved:2 · micro-batch 1",
                                     "pp=2,dp=4 · zero-bubble · micro-batch 1",
                                     "pp=2,dp=4 · 1f1b · micro-batch 2",
                                     "pp=4,dp=2 · 1f1b · micro-batch 1",
                                     "pp=4,dp=2 · zero-bubble · micro-batch 1",
                                     "pp=4,dp=2 · 1f1b · micro-batch 2",
                                     "pp=4,dp=2 · zero-bubble · micro-batch 2",
                                     "pp=4,dp=2 · 1f1b · micro-batch 4",
                                     "dp=4,tp=2 · micro-batch 1",
                                     "dp=4,tp=2 · micro-batch 2",
                                     "pp=2,dp=2,tp=2 · 1f1b · micro-batch 1",
                                     "pp=2,dp=2,tp=2 · interleaved:2 · micro-batch 1",
                                     "pp=2,dp=2,tp=2 · zero-bubble · micro-batch 1",
                                     "pp=2,dp=2,tp=2 · 1f1b · micro-batch 2",
                                     "pp=2,dp=2,tp=2 · interleaved:2 · micro-batch 2",
                                     "pp=2,dp=2,tp=2 · zero-bubble · micro-batch 2",
                                     "pp=2,dp=2,tp=2 · 1f1b · micro-batch 4",
                                     "pp=4,tp=2 · 1f1b · micro-batch 1",
                                     "pp=4,tp=2 · zero-bubble · micro-batch 1",
                                     "pp=4,tp=2 · 1f1b · micro-batch 2",
                                     "pp=4,tp=2 · zero-bubble · micro-batch 2",
                                     "pp=4,tp=2 · 1f1b · micro-batch 4",
                                     "pp=4,tp=2 · zero-bubble · micro-batch 4",
                                     "pp=4,tp=2 · 1f1b · micro-batch 8",
                                 }));
}

// ZeRO needs replicas, sequence parallelism tp; recomputation goes with all.
TEST(Enumerate, WhatAMeshAllows) {
  Space space = small(2);
  space.batch = 2;
  space.zero = {0, 3};
  space.sequence = {false, true};
  space.remat = {RematPolicy::Kind::none, RematPolicy::Kind::full};
  space.pipelines.resize(1);
  EXPECT_EQ(described(space), sorted({
                                  "dp=2 · micro-batch 1",
                                  "dp=2 · micro-batch 1 · ZeRO-3",
                                  "dp=2 · micro-batch 1 · remat full",
                                  "dp=2 · micro-batch 1 · ZeRO-3 · remat full",
                                  "pp=2 · 1f1b · micro-batch 1",
                                  "pp=2 · 1f1b · micro-batch 2",
                                  "pp=2 · 1f1b · micro-batch 1 · remat full",
                                  "pp=2 · 1f1b · micro-batch 2 · remat full",
                                  "tp=2 · micro-batch 1",
                                  "tp=2 · micro-batch 2",
                                  "tp=2 · micro-batch 1 · sequence",
                                  "tp=2 · micro-batch 2 · sequence",
                                  "tp=2 · micro-batch 1 · remat full",
                                  "tp=2 · micro-batch 2 · remat full",
                                  "tp=2 · micro-batch 1 · sequence · remat full",
                                  "tp=2 · micro-batch 2 · sequence · remat full",
                              }));
}

}  // namespace
}  // namespace trireme::planner
