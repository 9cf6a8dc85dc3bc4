#include "trireme/planner/integer_program.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "trireme/core/rng.h"

namespace trireme::planner {
namespace {

// Knapsacks with a choice in each of several groups: what the strategies of ops are.
TEST(IntegerProgram, EqualsTryingAllChoices) {
  if (!has_integer_solver()) GTEST_SKIP() << "this build has no integer solver";
  SplitMix random(3);
  for (int problem = 0; problem < 900; ++problem) {
    // Seconds of large and of tiny kernels, too, whose differences are below the solver's tolerances.
    const double unit = std::array{1.0, 1e-7, 1e5}[static_cast<std::size_t>(problem % 3)];
    constexpr int kGroups = 4, kEach = 3;
    std::vector<double> cost, weight;
    for (int i = 0; i < kGroups * kEach; ++i) {
      cost.push_back(unit * random.unit());
      weight.push_back(random.unit());
    }
    const double room = 0.5 + random.unit() * 2;
    IntegerProgram program;
    std::vector<IntegerProgram::Term> load;
    for (int g = 0; g < kGroups; ++g) {
      std::vector<IntegerProgram::Term> one;
      for (int i = 0; i < kEach; ++i) {
        const int v = program.add_variable(cost[static_cast<std::size_t>(g * kEach + i)], true);
        one.push_back({v, 1});
        load.push_back({v, weight[static_cast<std::size_t>(v)]});
      }
      program.add_row(one, 1, 1);
    }
    program.add_row(load, 0, room);
    double best = std::numeric_limits<double>::infinity();
    for (int code = 0; code < 81; ++code) {
      double sum = 0, used = 0;
      for (int g = 0, rest = code; g < kGroups; ++g, rest /= kEach) {
        const auto at = static_cast<std::size_t>(g * kEach + rest % kEach);
        sum += cost[at];
        used += weight[at];
      }
      if (used <= room) best = std::min(best, sum);
    }
    const auto values = program.solve();
    ASSERT_EQ(values.has_value(), best < 1e99) << problem;
    if (!values) continue;
    double sum = 0;
    for (std::size_t i = 0; i < cost.size(); ++i) sum += cost[i] * (*values)[i];
    EXPECT_NEAR(sum, best, 1e-6 * unit) << problem;
  }
}

}  // namespace
}  // namespace trireme::planner
