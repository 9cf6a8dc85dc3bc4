#include <gtest/gtest.h>

#include "trireme/cli/bench.h"

namespace trireme::cli {
namespace {

TEST(BenchOverlap, WhatIsHiddenIsNeverNegative) {
  EXPECT_EQ(hidden_text(0.001, 0.004), "hidden behind the computation: 75% of the communication");
  EXPECT_EQ(hidden_text(0.0, 0.004), "hidden behind the computation: 100% of the communication");
  EXPECT_EQ(hidden_text(0.004, 0.004), "hidden behind the computation: 0% of the communication");
  EXPECT_EQ(hidden_text(0.008, 0.004), "nothing is hidden: 8.0 ms show, 2.0× what the link takes");
}

}  // namespace
}  // namespace trireme::cli
