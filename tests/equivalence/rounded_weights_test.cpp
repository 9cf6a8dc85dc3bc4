// Training with weights that are rounded where they are read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "equivalence/training.h"
#include "equivalence/trajectory.h"
#include "trireme/passes/quantize_weights.h"
#include "trireme/train/graphs.h"
#include "trireme/train/quantization.h"

namespace trireme::testing {
namespace {

train::Config plain(const std::string& name) {
  train::Config config = small_model(name);
  config.train.batch = 8;
  config.train.micro_batch = 4;
  train::resolve_model(config, config.model.vocab);
  return config;
}

train::Config rounded(train::Config config) {
  config.train.quantize = "int8";
  return config;
}

std::vector<passes::QuantizedWeight> weights_of(const train::Config& config) {
  const train::Registry registry = {};
  return passes::quantized_weights(train::build_graphs(config, registry, {}).module, *train::trained_weights(config));
}

// Straight through: the parameters move by what the same model with rounded parameters has as gradients.
TEST(RoundedWeights, MoveByTheGradientsOfTheRounded) {
  for (const std::string name : {"gpt2", "llama"}) {
    train::Config config = plain(name);
    config.train.optimizer = "sgd";
    config.train.momentum = 0;
    config.train.weight_decay = 0;
    config.train.clip = 0;
    Trained aware(rounded(config)), reference(config);
    const auto before = aware.state();
    auto start = before;
    const std::vector<passes::QuantizedWeight> weights = weights_of(rounded(config));
    ASSERT_GE(weights.size(), 5U);
    for (const passes::QuantizedWeight& w : weights) {
      std::vector<float>& values = start.at(w.name);
      std::vector<std::byte> codes(w.format.codes(w.n, w.k).bytes());
      std::vector<float> scales(static_cast<std::size_t>(w.format.scales(w.n, w.k).elements()));
      ops::quantize_rows(values.data(), w.n, w.k, w.format, codes.data(), scales.data());
      ops::dequantize_rows(codes.data(), scales.data(), w.n, w.k, w.format, values.data());
      reference.session().write_state(w.name, 0, std::as_bytes(std::span(values)));
    }
    EXPECT_NE(start.at(weights.front().name), before.at(weights.front().name));
    aware.train(1);
    reference.train(1);
    EXPECT_NEAR(aware.losses().front(), reference.losses().front(), 1e-6 * std::abs(reference.losses().front()));
    const auto one = aware.state(), other = reference.state();
    for (const auto& [state, values] : before) {
      double off = 0, moved = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double mine = static_cast<double>(one.at(state)[i]) - static_cast<double>(values[i]);
        const double theirs = static_cast<double>(other.at(state)[i]) - static_cast<double>(start.at(state)[i]);
        off += (mine - theirs) * (mine - theirs);
        moved += theirs * theirs;
      }
      // Of weights and sums in f32, whose last bits differ.
      EXPECT_LE(std::sqrt(off), 1e-3 * std::sqrt(moved) + 1e-6) << name << " " << state;
    }
  }
}

// A code that tips makes a difference of a whole step, so a few updates are compared.
TEST(RoundedWeights, RanksTrainLikeOne) {
  for (const std::string name : {"gpt2", "llama"})
    for (const auto& [mesh, zero] : {std::pair("dp=2", 0), {"dp=2", 3}, {"pp=2", 0}, {"tp=2", 0}, {"dp=2,tp=2", 1}}) {
      SCOPED_TRACE(fmt::format("{} {} zero {}", name, mesh, zero));
      const train::Config config = rounded(plain(name));
      Trained one(config), many(over_mesh(config, mesh, zero));
      one.train(2);
      many.train(2);
      expect_equal_training(one, many, 5e-4);
      EXPECT_EQ(many.session().highest_offset(), many.compiled().arena_bytes());
    }
}

TEST(RoundedWeights, GoWithLowPrecision) {
  train::Config config = rounded(plain("gpt2"));
  config.train.optimizer = "sgd";
  train::Config low = config;
  low.train.precision = "bf16";
  expect_like_by_distance(config, low, {.tolerance = kLowPrecision, .steps = 2, .planted = true});
}

TEST(RoundedWeights, AreRecomputedToTheBit) {
  for (const char* remat : {"full", "selective", "every:1"}) {
    SCOPED_TRACE(remat);
    train::Config config = rounded(plain("gpt2"));
    Trained saved(config);
    config.memory.remat = remat;
    Trained recomputed(config);
    saved.train(2);
    recomputed.train(2);
    expect_same_bits(saved, recomputed);
  }
}

}  // namespace
}  // namespace trireme::testing
