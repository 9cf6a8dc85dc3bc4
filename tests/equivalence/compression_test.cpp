// Compressed gradients train like a plain reference of their mathematics.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "equivalence/compression_reference.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

using Vector = std::vector<float>;

constexpr std::int64_t kSteps = 6;
// With other seeds an element may come to 0 but for rounding, where its sign is anybody's.
constexpr std::int64_t kOneBitSeed = 7;

class Chunked : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Chunked, ::testing::Values("bf16", "int8"));

TEST_P(Chunked, TrainsLikeItsReference) {
  struct Case {
    int ranks;
    bool feedback;
    bool served = false;
  };
  for (const auto& [ranks, feedback, served] :
       std::vector<Case>{{2, true}, {3, true}, {4, true}, {2, false}, {4, false}, {3, true, true}, {2, false, true}}) {
    SCOPED_TRACE(fmt::format("dp={} error_feedback={} servers {}", ranks, feedback, served));
    train::Config config = compressed("mlp", ranks, GetParam());
    config.parallel.error_feedback = feedback;
    if (served) config = with_servers(config);
    Trained run(config);
    Replicas replicas(config, ranks);
    InChunks reference(GetParam(), ranks, feedback, served);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      run.train(1);
      replicas.sgd(reference.sum(replicas.gradients(step)), step);
      EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
    }
    ASSERT_GT(reference.closest(), 5e-7) << "a sign that rounding decides: choose another seed";
    EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
    EXPECT_EQ(run.session().highest_offset(), run.compiled().arena_bytes());
  }
}

// Residuals are of unscaled gradients: another scale, the same training.
class LossScaled : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, LossScaled, ::testing::Values("bf16", "int8", "onebit"));

TEST_P(LossScaled, DoesNotShow) {
  train::Config config = compressed("mlp", 2, GetParam());
  config.train.precision = "fp16";
  config.train.loss_scale = 1024;
  config.train.loss_scale_window = 1;  // doubles at each step
  Trained rising(config);
  config.train.loss_scale = 65536;
  config.train.loss_scale_window = 1000;
  Trained constant(config);
  rising.train(4);
  constant.train(4);
  for (std::size_t i = 0; i < rising.losses().size(); ++i)
    EXPECT_NEAR(rising.losses()[i], constant.losses()[i], 1e-3 * constant.losses()[i]) << "step " << i;
}

// Matrices as products of two thin ones.
class LowRank {
 public:
  // The first bases are the run's.
  LowRank(Trained& run, int rank, int ranks)
      : rank_(static_cast<std::size_t>(rank)), residual_(static_cast<std::size_t>(ranks)) {
    const auto start = run.state();
    for (const ir::State& state : run.role().module.states) {
      if (!state.trained) continue;
      const Shape rows = state.type.shape.as_rows();
      rows_[state.name] = rows;
      if (const auto basis = start.find(state.name + "/basis"); basis != start.end())
        basis_[state.name].assign(basis->second.begin(), basis->second.end());
    }
  }

  Tensors sum(const std::vector<Tensors>& terms) {
    Tensors result;
    for (const auto& [name, first] : terms.front()) {
      const Shape rows = rows_.at(name);
      const bool thin = rows.rank() == 2 && rows.elements() > (rows[0] + rows[1]) * std::int64_t(rank_);
      EXPECT_EQ(thin, basis_.contains(name)) << name;
      result[name] = thin ? product(name, terms, std::size_t(rows[0]), std::size_t(rows[1])) : plain(name, terms);
    }
    return result;
  }

 private:
  static Vector plain(const std::string& name, const std::vector<Tensors>& terms) {
    Vector total(terms.front().at(name).size(), 0.0F);
    for (const Tensors& t : terms)
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += t.at(name)[i];
    return total;
  }

  Vector product(const std::string& name, const std::vector<Tensors>& terms, std::size_t n, std::size_t m) {
    std::vector<double>& q = basis_.at(name);
    std::vector<std::vector<double>> matrices;
    std::vector<double> total(n * m, 0);
    for (std::size_t r = 0; r < terms.size(); ++r) {
      Vector& lost = residual_[r][name];
      lost.resize(n * m);
      std::vector<double>& a = matrices.emplace_back(n * m);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<double>(lost[i]) + static_cast<double>(terms[r].at(name)[i]);
        total[i] += a[i];
      }
    }
    std::vector<double> p(n * rank_, 0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < m; ++k)
        for (std::size_t c = 0; c < rank_; ++c) p[i * rank_ + c] += total[i * m + k] * q[k * rank_ + c];
    for (std::size_t c = 0; c < rank_; ++c) {
      for (int twice = 0; twice < 2; ++twice)
        for (std::size_t k = 0; k < c; ++k) {
          double along = 0;
          for (std::size_t i = 0; i < n; ++i) along += p[i * rank_ + c] * p[i * rank_ + k];
          for (std::size_t i = 0; i < n; ++i) p[i * rank_ + c] -= along * p[i * rank_ + k];
        }
      double square = 0;
      for (std::size_t i = 0; i < n; ++i) square += p[i * rank_ + c] * p[i * rank_ + c];
      for (std::size_t i = 0; i < n; ++i) p[i * rank_ + c] /= std::sqrt(square);
    }
    std::fill(q.begin(), q.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < m; ++k)
        for (std::size_t c = 0; c < rank_; ++c) q[k * rank_ + c] += total[i * m + k] * p[i * rank_ + c];
    Vector g(n * m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < m; ++k) {
        double x = 0;
        for (std::size_t c = 0; c < rank_; ++c) x += p[i * rank_ + c] * q[k * rank_ + c];
        g[i * m + k] = static_cast<float>(x);
        for (std::size_t r = 0; r < terms.size(); ++r)
          residual_[r][name][i * m + k] = static_cast<float>(matrices[r][i * m + k] - x / double(terms.size()));
      }
    return g;
  }

  std::size_t rank_;
  std::map<std::string, Shape> rows_;
  std::map<std::string, std::vector<double>> basis_;
  std::vector<Tensors> residual_;
};

TEST(PowerSgd, TrainsLikeItsReference) {
  for (const char* model : {"mlp", "convnet"})
    for (const int rank : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} rank {}", model, rank));
      const train::Config config = compressed(model, 3, fmt::format("powersgd:{}", rank));
      // Batch norm's statistics are of all ranks' rows: a replica alone has them where all have the same rows.
      const bool norms = std::string(model) == "convnet";
      testing::Setup setup;
      if (norms) setup.batch = [](const train::Config& c, std::int64_t step) { return same_rows(c, 3, step); };
      Trained run(config, setup);
      Replicas replicas(config, 3, norms);
      LowRank reference(run, rank, 3);
      for (std::int64_t step = 0; step < kSteps; ++step) {
        run.train(1);
        replicas.sgd(reference.sum(replicas.gradients(step)), step);
        EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
      }
      EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
      EXPECT_EQ(run.session().highest_offset(), run.compiled().arena_bytes());
    }
}

// Deep Gradient Compression, as its paper has it, with everything sent in the first steps.
class Largest {
 public:
  Largest(const train::Config& config, int ranks, double fraction, std::int64_t dense)
      : config_(config),
        fraction_(fraction),
        dense_(dense),
        momentum_(static_cast<std::size_t>(ranks)),
        unsent_(static_cast<std::size_t>(ranks)) {}

  Tensors direction(std::vector<Tensors> terms, std::int64_t step) {
    Tensors result;
    for (std::size_t r = 0; r < terms.size(); ++r) {
      Replicas::clip(terms[r], config_.train.clip / std::sqrt(static_cast<double>(terms.size())));
      for (const auto& [name, g] : terms[r]) {
        Vector& u = momentum_[r][name];
        Vector& v = unsent_[r][name];
        Vector& sum = result[name];
        for (Vector* x : {&u, &v, &sum}) x->resize(g.size());
        const bool all = step < dense_ || g.size() < kSmallTensor;
        for (std::size_t i = 0; i < g.size(); ++i) {
          u[i] = static_cast<float>(config_.train.momentum) * u[i] + g[i];
          if (all)
            sum[i] += u[i];
          else
            v[i] += u[i];
        }
        if (all) continue;
        for (const std::size_t i : largest(v)) {
          sum[i] += v[i];
          v[i] = 0;
          if (config_.parallel.momentum_masking) u[i] = 0;
        }
      }
    }
    return result;
  }

 private:
  std::vector<std::size_t> largest(const Vector& v) const {
    std::vector<std::size_t> order(v.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
    order.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, std::llround(fraction_ * double(v.size())))));
    return order;
  }

  const train::Config& config_;
  double fraction_;
  std::int64_t dense_;
  std::vector<Tensors> momentum_;
  std::vector<Tensors> unsent_;
};

// Signs of each rank's own momentum, and the sum in chunks as above.
TEST(OneBit, TrainsLikeItsReference) {
  struct Case {
    int ranks;
    bool feedback;
    std::int64_t dense;
    bool served = false;
  };
  for (const auto& [ranks, feedback, dense, served] : std::vector<Case>{{2, true, 0},
                                                                        {3, true, 2},
                                                                        {4, true, 0},
                                                                        {2, false, 2},
                                                                        {3, false, 0},
                                                                        {4, false, 2},
                                                                        {3, true, 2, true},
                                                                        {2, true, 0, true}}) {
    SCOPED_TRACE(fmt::format("dp={} error_feedback={} warm-up={} servers {}", ranks, feedback, dense, served));
    train::Config config = compressed("mlp", ranks, "onebit");
    config.train.seed = kOneBitSeed;
    config.train.clip = 0.5;
    config.parallel.error_feedback = feedback;
    config.parallel.compress_warmup = dense;
    if (dense == 0) config.train.steps = 3;  // a quarter of which is nothing
    if (served) config = with_servers(config);
    Trained run(config);
    Replicas replicas(config, ranks);
    InChunks packed("onebit", ranks, feedback, served);
    InChunks plain("none", ranks, feedback);
    std::vector<Tensors> momenta(static_cast<std::size_t>(ranks));
    for (std::int64_t step = 0; step < kSteps; ++step) {
      run.train(1);
      std::vector<Tensors> terms = replicas.gradients(step);
      for (std::size_t r = 0; r < terms.size(); ++r) {
        Replicas::clip(terms[r], config.train.clip / std::sqrt(static_cast<double>(ranks)));
        for (auto& [name, g] : terms[r]) {
          Vector& u = momenta[r][name];
          u.resize(g.size());
          for (std::size_t i = 0; i < g.size(); ++i) u[i] = static_cast<float>(config.train.momentum) * u[i] + g[i];
        }
      }
      replicas.apply((step < dense ? plain : packed).sum(momenta), step);
      EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
    }
    ASSERT_GT(packed.closest(), 1e-6) << "a sign that rounding decides: choose another seed";
    EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
    EXPECT_EQ(run.session().highest_offset(), run.compiled().arena_bytes());
  }
}

TEST(TopK, TrainsLikeItsReference) {
  struct Case {
    int ranks;
    double clip;
    std::int64_t dense;
    bool served = false;
  };
  for (const auto& [ranks, clip, dense, served] :
       std::vector<Case>{{2, 0.0, 0}, {3, 0.5, 2}, {2, 0.5, 0}, {3, 0.0, 2}, {3, 0.5, 2, true}, {2, 0.0, 0, true}}) {
    SCOPED_TRACE(fmt::format("dp={} clip={} warm-up={} servers {}", ranks, clip, dense, served));
    train::Config config = compressed("mlp", ranks, "topk:0.05");
    config.parallel.momentum_masking = ranks == 3;
    config.train.clip = clip;
    config.parallel.compress_warmup = dense;
    if (dense == 0) config.train.steps = 3;  // a quarter of which is nothing
    if (served) config = with_servers(config);
    Trained run(config);
    Replicas replicas(config, ranks);
    Largest reference(config, ranks, 0.05, dense);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      run.train(1);
      replicas.apply(reference.direction(replicas.gradients(step), step), step);
      EXPECT_NEAR(run.losses().back(), replicas.loss(), 1e-5 * replicas.loss()) << "step " << step;
    }
    EXPECT_LE(weight_error(run, replicas.weights()), 1e-5);
    EXPECT_EQ(run.session().highest_offset(), run.compiled().arena_bytes());
  }
}

struct Kind {
  std::string compress;
  std::string optimizer;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.compress << " with " << kind.optimizer; }

train::Config of_kind(const Kind& kind, int ranks) {
  train::Config config = compressed("gpt2", ranks, "none");
  config.train.optimizer = kind.optimizer;
  config.train.lr = 1e-3;
  config.train.warmup = 2;
  config.parallel.compress = kind.compress;
  if (kind.compress.starts_with("onebit") || kind.compress.starts_with("topk")) config.parallel.compress_warmup = 2;
  train::check(config);
  return config;
}

class Compressed : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Compressed,
                         ::testing::Values(Kind{"bf16", "sgd"}, Kind{"int8", "adamw"}, Kind{"onebit", "sgd"},
                                           Kind{"onebit", "adamw"}, Kind{"topk:0.02", "sgd"}, Kind{"powersgd:2", "sgd"},
                                           Kind{"powersgd:2", "adamw"}));

TEST_P(Compressed, OverlapBucketsAndMemoryDoNotShow) {
  for (const char* precision : {"f32", "bf16", "fp16"})
    for (const std::int64_t micro : {6, 3}) {
      SCOPED_TRACE(fmt::format("{} micro-batches of {} rows", precision, micro));
      train::Config one = of_kind(GetParam(), 4);
      one.train.precision = precision;
      one.train.micro_batch = micro;
      train::Config other = one;
      one.parallel.bucket.count = 2000;
      other.parallel.overlap = false;
      other.memory.remat = "full";
      Trained a(one);
      Trained b(other);
      a.train(5);
      b.train(5);
      expect_same_bits(a, b);
      EXPECT_EQ(a.session().highest_offset(), a.compiled().arena_bytes());
    }
}

TEST_P(Compressed, ABadStepLeavesEverythingAsItWas) {
  train::Config config = of_kind(GetParam(), 2);
  config.train.precision = "fp16";
  Trained run(config);
  run.train(3);
  const float huge = 3e38F;
  run.session().write_state("loss_scale", 0, std::as_bytes(std::span(&huge, 1)));
  const auto before = run.state();
  EXPECT_FALSE(run.step().finite);
  const auto after = run.state();
  for (const auto& [name, values] : before)
    if (!name.starts_with("loss_scale")) {
      EXPECT_TRUE(values == after.at(name)) << name;
    }
}

TEST_P(Compressed, ResumesToTheBitAndStartsAnewWithOtherRanks) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("trireme_compressed_{}", ::getpid());
  std::filesystem::remove_all(folder);
  const train::Config config = of_kind(GetParam(), 2);
  Trained whole(config);
  whole.train(4);
  train::save_checkpoint(folder, whole.session(), config, 4, 1);
  const auto saved = whole.state();
  whole.train(3);
  Trained resumed(config);
  train::load_checkpoint(folder, 4, resumed.session());
  for (std::int64_t step = 4; step < 7; ++step)
    resumed.session().step(batch_of(config, step), step, train::learning_rate(config.train, step), config.train.seed);
  const auto state = resumed.state();
  for (const auto& [name, values] : whole.state()) EXPECT_TRUE(values == state.at(name)) << name;

  Trained other(of_kind(GetParam(), 3));
  std::string note;
  train::load_checkpoint(folder, 4, other.session(), {.log = [&](LogLevel, const std::string& text) { note += text; }});
  EXPECT_NE(note.find("start anew"), std::string::npos) << note;
  for (const auto& [name, values] : other.state())
    if (name.find('/') == std::string::npos) {
      EXPECT_TRUE(values == saved.at(name)) << name;
    }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::testing
