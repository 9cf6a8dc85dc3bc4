// 1-bit Adam trains like a plain reference of its mathematics, from wherever in a run it begins.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "equivalence/compression_reference.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/compression.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSteps = 6;

// AdamW, and what is done instead while its variance stays as it is: signs of the momentum are what ranks sum up.
class Adam {
 public:
  Adam(const train::Config& config, int ranks, bool one_way = false)
      : config_(config), ranks_(ranks), packed_("onebit", ranks, true, one_way) {}

  // Of every step one of them.
  Tensors learned(std::vector<Tensors> terms, std::int64_t step) {
    const auto [beta1, beta2] = config_.train.betas;
    // It counts as if it had been learned all the time.
    const double missed = known(step) / known(seen_);
    Tensors g = InChunks("none", ranks_, false).sum(terms);
    Replicas::clip(g, config_.train.clip);
    for (const auto& [name, values] : g) {
      m_[name].resize(values.size());
      v_[name].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto x = static_cast<double>(values[i]);
        const double v = static_cast<double>(v_[name][i]) * (seen_ == step ? 1 : missed);
        m_[name][i] = static_cast<float>(beta1 * static_cast<double>(m_[name][i]) + (1 - beta1) * x);
        v_[name][i] = static_cast<float>(beta2 * v + (1 - beta2) * x * x);
      }
    }
    seen_ = step + 1;
    return direction(step);
  }
  Tensors kept(std::vector<Tensors> terms, std::int64_t step) {
    const double beta1 = config_.train.betas[0];
    for (Tensors& term : terms) {
      Replicas::clip(term, config_.train.clip / std::sqrt(static_cast<double>(ranks_)));
      for (auto& [name, values] : term)
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<float>(beta1 / ranks_ * static_cast<double>(m_[name][i]) +
                                         (1 - beta1) * static_cast<double>(values[i]));
    }
    m_ = packed_.sum(terms);
    return direction(step);
  }

 private:
  double known(std::int64_t updates) const {
    return 1 - std::pow(config_.train.betas[1], static_cast<double>(updates));
  }
  Tensors direction(std::int64_t step) const {
    Tensors direction = m_;
    for (auto& [name, values] : direction)
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(
            static_cast<double>(values[i]) / (1 - std::pow(config_.train.betas[0], static_cast<double>(step + 1))) /
            (std::sqrt(static_cast<double>(v_.at(name)[i]) / known(seen_)) + config_.train.eps));
    return direction;
  }

  train::Config config_;
  int ranks_;
  InChunks packed_;
  Tensors m_;
  Tensors v_;
  std::int64_t seen_ = 0;  // updates, by the variance
};

train::Config adam(int ranks, double clip) {
  train::Config config = compressed("mlp", ranks, "none");
  config.train.optimizer = "adamw";
  config.train.lr = 1e-3;
  config.train.clip = clip;
  return config;
}

train::Config with_onebit(train::Config config, std::int64_t warmup) {
  config.parallel.compress = "onebit";
  config.parallel.compress_warmup = warmup;
  return config;
}

TEST(OneBitAdam, TrainsLikeItsReference) {
  struct Case {
    int ranks;
    double clip;
    bool served = false;
  };
  for (const auto& [ranks, clip, served] : std::vector<Case>{{2, 0.0}, {4, 0.5}, {2, 0.5}, {3, 0.5, true}}) {
    SCOPED_TRACE(fmt::format("dp={} clip={} servers {}", ranks, clip, served));
    train::Config config = with_onebit(adam(ranks, clip), 3);
    if (served) config = with_servers(config);
    Trained run(config);
    Replicas replicas(config, ranks);
    Adam reference(config, ranks, served);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      run.train(1);
      const std::vector<Tensors> terms = replicas.gradients(step);
      EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
      replicas.apply(
          step < config.parallel.compress_warmup ? reference.learned(terms, step) : reference.kept(terms, step), step);
    }
    EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
  }
}

// Of a run that goes on with other keys, the variance is corrected by the updates that it has seen, in whichever part.
TEST(OneBitAdam, BeginsAndEndsInTheMidstOfARun) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("trireme_onebit_{}", ::getpid());
  const train::Config plain = adam(2, 0.0);
  struct Part {
    train::Config config;
    std::int64_t until;
    bool learns;
  };
  // The second has a warm-up that was over long ago, the third one that is not over yet.
  const std::vector<Part> parts = {
      {plain, 3, true}, {with_onebit(plain, 1), 5, false}, {with_onebit(plain, 7), 6, true}, {plain, 8, true}};
  Replicas replicas(plain, 2);
  Adam reference(plain, 2);
  std::int64_t step = 0;
  const train::Config* before = nullptr;
  for (const Part& part : parts) {
    SCOPED_TRACE(fmt::format("until step {}", part.until));
    Trained run(part.config);
    if (before != nullptr) {
      train::load_checkpoint(folder, step, run.session(),
                             {.variance_scale = train::variance_scale(part.config, *before, step, 1)});
      run.skip_to(step);
    }
    for (; step < part.until; ++step) {
      run.train(1);
      const std::vector<Tensors> terms = replicas.gradients(step);
      EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
      replicas.apply(part.learns ? reference.learned(terms, step) : reference.kept(terms, step), step);
    }
    EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
    train::save_checkpoint(folder, run.session(), part.config, step, 1);
    before = &part.config;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::testing
