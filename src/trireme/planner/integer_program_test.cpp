#include "trireme/planner/integer_program.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/core/rng.h"

namespace trireme::planner {
namespace {

// A choice in each of four groups of three, with a limit of the sum of weights: what the strategies of ops are.
struct Knapsack {
  static constexpr int kGroups = 4, kEach = 3;
  std::vector<double> cost, weight;
  double room = 0;

  // By trying all choices; infinite: none fits.
  double best() const {
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
    return best;
  }
  // By the solver.
  double solved() const {
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
    const auto values = program.solve();
    if (!values) return std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::size_t i = 0; i < cost.size(); ++i) sum += cost[i] * (*values)[i];
    return sum;
  }
};

void expect_best(const Knapsack& k, double unit) {
  const double best = k.best();
  if (std::isinf(best))
    EXPECT_EQ(k.solved(), best);
  else
    EXPECT_NEAR(k.solved(), best, 1e-6 * unit);
}

// Seconds of large and of tiny kernels, too, whose differences are below the solver's tolerances.
TEST(IntegerProgram, EqualsTryingAllChoices) {
  if (!has_integer_solver()) GTEST_SKIP() << "this build has no integer solver";
  SplitMix random(3);
  for (int problem = 0; problem < 900; ++problem) {
    SCOPED_TRACE(problem);
    const double unit = std::array{1.0, 1e-7, 1e5}[static_cast<std::size_t>(problem % 3)];
    Knapsack k;
    for (int i = 0; i < Knapsack::kGroups * Knapsack::kEach; ++i) {
      k.cost.push_back(unit * random.unit());
      k.weight.push_back(random.unit());
    }
    k.room = 0.5 + random.unit() * 2;
    expect_best(k, unit);
  }
}

// An assertion of CBC 2.10.8 ends the process that solves this one with cuts.
TEST(IntegerProgram, SurvivesItsSolver) {
  if (!has_integer_solver()) GTEST_SKIP() << "this build has no integer solver";
  expect_best({.cost = {0.3466864832771119, 0.8943499658162672, 0.9528659146961058, 0.13558860042682028,
                        0.07560550748812536, 0.5486196043802782, 0.9119455430612976, 0.8940553643003157,
                        0.2617165833753739, 0.8734267429592314, 0.6292102330250962, 0.6736177462584243},
               .weight = {0.7813867553242065, 0.839659202800181, 0.07809237970760276, 0.8727255301948108,
                          0.9138025280883142, 0.09777008249851882, 0.5725256357692172, 0.22870284890736395,
                          0.7829001753695816, 0.1842668526752587, 0.8631164136606067, 0.704797926323054},
               .room = 2.2285264840273564},
              1);
}

}  // namespace
}  // namespace trireme::planner
