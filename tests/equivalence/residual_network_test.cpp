// A whole ResNet-18 over meshes, in as many steps as the law asks for.
//
// A rectifier whose input is zero but for rounding lets a gradient through or not, and the run goes one way or the
// other from there: of the million rectifiers in twenty steps some are such. The test therefore looks for start values
// of which one rank stays within 2e-5 of itself when its weights start some rounding errors of f32 away, and then asks
// every mesh for 2e-5.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "equivalence/trajectory.h"

namespace trireme::testing {
namespace {

constexpr double kLaw = 2e-5;
constexpr double kStays = 1.5e-5;
constexpr std::uint64_t kDraws = 6;

// The largest relative difference of a loss, and of a weight by its tensor's norm.
struct Apart {
  double losses = 0;
  double weights = 0;
  std::string worst;
};

Apart apart(const Trajectory& a, const Trajectory& b) {
  Apart result;
  EXPECT_FALSE(a.losses.empty());
  EXPECT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    result.losses = larger(result.losses, std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses[i]));
  for (const auto& [name, values] : a.weights) {
    double difference = 0;
    double norm = 0;
    const std::vector<float>& theirs = b.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(theirs[i]), 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    const double relative = difference == 0 ? 0 : std::sqrt(difference / norm);
    if (relative > result.weights || std::isnan(relative)) result.worst = name;
    result.weights = larger(result.weights, relative);
  }
  return result;
}

train::Config network(bool stages, std::uint64_t seed) {
  train::Config config = small_model("resnet18");
  config.train.batch = stages ? 96 : 48;
  config.train.micro_batch = 48;
  config.train.optimizer = "sgd";
  config.train.lr = 0.01;
  config.train.seed = static_cast<std::int64_t>(seed);
  config.model.image = 13;
  train::resolve_model(config, config.model.vocab);
  return config;
}

Trajectory trained(const train::Config& config, std::int64_t steps, const Moved& moved = {}, const Setup& setup = {}) {
  Trained run(config, setup);
  if (moved.by > 0) move_weights(run, moved);
  return train_plan(run, config, steps);
}

bool stays_with_itself(const train::Config& plain, const Trajectory& reference, std::int64_t steps) {
  for (std::uint64_t draw = 1; draw <= kDraws; ++draw) {
    const Apart own = apart(reference, trained(plain, steps, {0x1p-22, draw}));
    if (own.losses > kStays || own.weights > kStays) {
      fmt::print("seed {}: one rank is {:.1e} from itself ({})\n", plain.train.seed, own.weights, own.worst);
      return false;
    }
  }
  return true;
}

struct Case {
  const char* mesh;
  int zero = 0;
};

void expect_law(bool stages, const std::vector<Case>& cases) {
  const std::int64_t steps = steps_asked(8);
  train::Config plain;
  Trajectory reference;
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 100 && !found; ++seed) {
    plain = network(stages, seed);
    reference = trained(plain, steps);
    found = stays_with_itself(plain, reference, steps);
  }
  ASSERT_TRUE(found) << "no start values of which one rank stays with itself";
  for (const auto& [mesh, zero] : cases) {
    SCOPED_TRACE(fmt::format("{} zero={}", mesh, zero));
    const Apart a = apart(reference, trained(over_mesh(plain, mesh, zero), steps));
    fmt::print("seed {} {:<12} zero {}: losses {:.1e}, weights {:.1e} ({})\n", plain.train.seed, mesh, zero, a.losses,
               a.weights, a.worst);
    EXPECT_LE(a.losses, kLaw);
    EXPECT_LE(a.weights, kLaw) << a.worst;
  }
}

TEST(ResidualNetwork, TrainsLikeOneRankOverImages) {
  expect_law(false,
             {{"h=3"}, {"w=2"}, {"h=2,w=2"}, {"dp=2,h=3", 1}, {"dp=2,w=2", 2}, {"dp=2,h=2,w=2", 3}, {"h=2,tp=2"}});
}

// With every stage of ZeRO: where as many steps are asked for as the law has.
TEST(ResidualNetwork, TrainsLikeOneRankOverEveryMeshAndReplicas) {
  if (steps_asked(8) < 20) GTEST_SKIP() << "TRIREME_STEPS=20 asks for it";
  std::vector<Case> cases;
  for (const char* mesh : {"dp=2,tp=2", "dp=2,tp=3", "dp=2,tp=4", "dp=2,h=3", "dp=2,w=2", "dp=2,h=2,w=2"})
    for (const int zero : {0, 1, 2, 3}) cases.push_back({mesh, zero});
  expect_law(false, cases);
}

TEST(ResidualNetwork, TrainsLikeOneRankOverChannelsAndReplicas) {
  expect_law(false, {{"tp=2"},
                     {"tp=3"},
                     {"tp=4"},
                     {"dp=2"},
                     {"dp=3", 3},
                     {"dp=2,tp=2"},
                     {"dp=2,tp=2", 1},
                     {"dp=2,tp=2", 2},
                     {"dp=2,tp=2", 3}});
}

TEST(ResidualNetwork, TrainsLikeOneRankOverStages) {
  expect_law(true, {{"pp=2"}, {"pp=3"}, {"pp=4"}, {"pp=2,dp=2", 3}, {"pp=2,tp=2"}, {"pp=2,h=3"}});
}

}  // namespace
}  // namespace trireme::testing
