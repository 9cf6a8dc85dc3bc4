// Asynchronous pipelines train as a plainly written reference of their rules.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "equivalence/pipedream_reference.h"
#include "trireme/core/error.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

train::Config piped(const std::string& name, const std::string& mesh, const std::string& pipeline, int micro_batches,
                    int zero = 0) {
  train::Config config = small_model(name);
  config.model.layers = 4;
  config.model.tie_embeddings = false;
  config.train.batch = 12;
  config.train.micro_batch = 12 / micro_batches;
  config.parallel.pipeline = pipeline;
  train::resolve_model(config, config.model.vocab);
  return over_mesh(config, mesh, zero);
}

// Several steps of a pipeline that stays full in between.
class Piped {
 public:
  explicit Piped(const train::Config& config) : config_(config), trained_(config) {}

  void train(std::int64_t steps, const std::function<bool()>& interrupt = {}) {
    const auto first = static_cast<std::int64_t>(losses_.size());
    std::vector<std::vector<data::Batch>> batches(trained_.session().ranks().size());
    taken_ = trained_.session().run({.first = first,
                                     .count = steps,
                                     .seed = config_.train.seed,
                                     .lr = [&](std::int64_t step) { return train::learning_rate(config_.train, step); },
                                     .batch = [&](std::size_t rank, std::int64_t step) -> const data::Batch& {
                                       return batches[rank].emplace_back(batch_of(config_, step));
                                     },
                                     .done =
                                         [&](std::size_t rank, std::int64_t step, const train::StepResult& result) {
                                           if (rank != 0) return;
                                           EXPECT_EQ(step, static_cast<std::int64_t>(losses_.size()));
                                           EXPECT_TRUE(result.finite);
                                           losses_.push_back(static_cast<double>(result.loss));
                                           norms_.push_back(static_cast<double>(result.grad_norm));
                                         },
                                     .interrupt = interrupt});
  }

  // The state was set from elsewhere.
  void skip_to(std::int64_t step) { losses_.assign(static_cast<std::size_t>(step), 0); }
  std::int64_t taken() const { return taken_; }
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& norms() const { return norms_; }
  Trained& trained() { return trained_; }

 private:
  train::Config config_;
  Trained trained_;
  std::vector<double> losses_;
  std::vector<double> norms_;  // of the steps that were taken here
  std::int64_t taken_ = 0;
};

// Gives how many running statistics were compared.
std::size_t expect_like_reference(const train::Config& config, std::int64_t steps,
                                  const std::vector<std::int64_t>& ahead = {}) {
  PipedreamReference reference(config, ahead);
  Piped piped(config);
  const auto before = reference.weights();
  // Drained once on the way.
  for (const std::int64_t some : {steps - 2, std::int64_t{2}}) {
    reference.train(some);
    piped.train(some);
    EXPECT_EQ(piped.taken(), some);
    // As near as the weights that it is taken at, below. Norms of different micro-batches are per cents apart.
    EXPECT_NEAR(piped.norms().back(), reference.grad_norm(), 1e-4 * reference.grad_norm());
  }
  // While the pipeline is full, no update has been made by all stages.
  for (std::int64_t s = 0; s < steps; ++s)
    EXPECT_EQ(std::isnan(piped.norms().at(static_cast<std::size_t>(s))), s != steps - 3 && s != steps - 1) << s;
  EXPECT_EQ(reference.losses().size(), piped.losses().size());
  for (std::size_t s = 0; s < std::min(reference.losses().size(), piped.losses().size()); ++s)
    EXPECT_NEAR(piped.losses()[s], reference.losses()[s], 1e-6 * std::abs(reference.losses()[s])) << "step " << s;
  // By how far they have come, since what starts at zero is small; and by what f32 rounds off in a dozen updates.
  const auto distance = [](const std::vector<float>& x, const std::vector<float>& y) {
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      squares += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2.0);
    return std::sqrt(squares);
  };
  const auto state = piped.trained().state();
  for (const auto& [name, values] : reference.weights())
    EXPECT_LE(distance(values, state.at(name)),
              1e-4 * distance(values, before.at(name)) + 1e-6 * distance(values, std::vector<float>(values.size())))
        << name;
  // Of the micro-batches in their order, whatever was in flight.
  const auto statistics = reference.statistics();
  for (const auto& [name, values] : statistics)
    EXPECT_LE(distance(values, state.at(name)), 1e-5 * distance(values, std::vector<float>(values.size()))) << name;
  EXPECT_EQ(piped.trained().session().highest_offset(), piped.trained().compiled().arena_bytes());
  return statistics.size();
}

class AsyncPipelines : public ::testing::TestWithParam<std::string> {};

TEST_P(AsyncPipelines, TrainsLikeItsReference) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const int stages : {2, 3})
      for (const int micro_batches : {2, 3, 4, 6}) {
        if (micro_batches < stages && std::string(pipeline) == "pipedream-2bw") continue;
        SCOPED_TRACE(fmt::format("{} {} pp={} m={}", GetParam(), pipeline, stages, micro_batches));
        expect_like_reference(piped(GetParam(), fmt::format("pp={}", stages), pipeline, micro_batches), 7);
      }
}

TEST_P(AsyncPipelines, WithReplicasShardsAndRecomputation) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(pipeline);
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("zero={}", zero));
      expect_like_reference(piped(GetParam(), "pp=2,dp=2", pipeline, 3, zero), 4);
    }
    expect_like_reference(piped(GetParam(), "pp=2,tp=2", pipeline, 3), 4);
    train::Config config = piped(GetParam(), "pp=3", pipeline, 3);
    config.memory.remat = "full";
    expect_like_reference(config, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AsyncPipelines, ::testing::Values("mlp", "gpt2", "llama"),
                         [](const auto& tested) { return tested.param; });

// A rate that changes from step to step: each update has that of the step whose rows it is of.
TEST_P(AsyncPipelines, UpdatesHaveTheRateOfTheirStep) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const int stages : {2, 3})
      for (const int micro_batches : {3, 4}) {
        SCOPED_TRACE(fmt::format("{} pp={} m={}", pipeline, stages, micro_batches));
        train::Config config = piped(GetParam(), fmt::format("pp={}", stages), pipeline, micro_batches);
        config.train.schedule = "linear";
        config.train.steps = 8;
        config.train.warmup = 3;
        expect_like_reference(config, 7);
      }
}

// Masks are of the row and the step, whichever version of the weights is used.
TEST(AsyncPipeline, DropsWhatTheReferenceDrops) {
  for (const char* mesh : {"pp=3", "pp=2,dp=2", "pp=2,tp=2"})
    for (const char* remat : {"none", "full"}) {
      SCOPED_TRACE(fmt::format("{} {}", mesh, remat));
      train::Config config = piped("gpt2", mesh, "pipedream-2bw", 3);
      config.model.dropout = 0.3;
      config.memory.remat = remat;
      Piped without(piped("gpt2", mesh, "pipedream-2bw", 3));
      Piped with(config);
      for (Piped* one : {&without, &with}) one->train(1);
      EXPECT_NE(without.losses(), with.losses());
      expect_like_reference(config, 4);
    }
}

TEST(AsyncPipeline, WithSlicesOfImages) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const char* mesh : {"pp=2,h=2", "pp=2,w=3", "pp=2,dp=2,h=2"}) {
      SCOPED_TRACE(fmt::format("{} {}", pipeline, mesh));
      train::Config config = small_model("convnet");
      config.model.image = 13;
      config.train.batch = 32;
      config.train.micro_batch = 8;
      config.train.lr = 1e-4;
      config.parallel.pipeline = pipeline;
      train::resolve_model(config, config.model.vocab);
      expect_like_reference(over_mesh(config, mesh), 4);
    }
}

TEST(AsyncPipeline, FourStagesAndFewMicroBatches) {
  for (const int micro_batches : {1, 2, 4, 6}) {
    SCOPED_TRACE(fmt::format("m={}", micro_batches));
    expect_like_reference(piped("mlp", "pp=4", "pipedream", micro_batches), 5);
    if (micro_batches >= 4) expect_like_reference(piped("mlp", "pp=4", "pipedream-2bw", micro_batches), 5);
  }
}

// Running statistics are the micro-batches' in their order, and no gradient reads them.
TEST(AsyncPipeline, BatchNorm) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    train::Config config = small_model("resnet18");
    config.train.batch = 12;
    config.train.micro_batch = 4;
    config.train.lr = 1e-4;  // the statistics of a few rows amplify rounding errors
    config.parallel.pipeline = pipeline;
    train::resolve_model(config, config.model.vocab);
    EXPECT_GE(expect_like_reference(over_mesh(config, "pp=2"), 4), 40U);  // a mean and a variance of 20 layers
  }
}

TEST(AsyncPipeline, AllRanksStopAfterTheSameStep) {
  const train::Config config = piped("mlp", "pp=3", "pipedream", 4);
  PipedreamReference reference(config);
  Piped stopped(config);
  int asked = 0;
  // After the third step all hear of it, and the fourth is under way.
  stopped.train(50, [&] { return ++asked == 3; });
  EXPECT_EQ(stopped.taken(), 4);
  stopped.train(3);
  EXPECT_EQ(stopped.taken(), 3);
  reference.train(4);
  reference.train(3);
  ASSERT_EQ(stopped.losses().size(), 7U);
  for (std::size_t s = 0; s < 7; ++s)
    EXPECT_NEAR(stopped.losses()[s], reference.losses()[s], 1e-6 * reference.losses()[s]) << "step " << s;
}

// What is saved after a drain is all that the next steps need.
TEST(AsyncPipeline, ContinuesFromWhatIsSavedToTheBit) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    for (const char* precision : {"f32", "bf16"}) {
      SCOPED_TRACE(fmt::format("{} {}", pipeline, precision));
      train::Config config = piped("gpt2", "pp=3", pipeline, 4);
      config.train.precision = precision;
      Piped whole(config);
      Piped resumed(config);
      whole.train(3);
      for (const ir::State& state : whole.trained().compiled().saved_states()) {
        EXPECT_EQ(state.name.find("version"), std::string::npos);
        EXPECT_FALSE(state.name.starts_with("flight/"));
        resumed.trained().session().write_state(state.name, 0, whole.trained().session().state(state.name));
      }
      resumed.trained().session().refresh_copies();
      resumed.skip_to(3);
      whole.train(3);
      resumed.train(3);
      for (std::size_t s = 3; s < 6; ++s) EXPECT_EQ(whole.losses()[s], resumed.losses()[s]) << "step " << s;
      expect_same_state(whole.trained(), resumed.trained());
    }
  }
}

TEST(AsyncPipeline, StagesHoldTheVersionsAndActivationsOfTheirMicroBatches) {
  for (const int stages : {2, 3, 4}) {
    const Trained pipedream(piped("gpt2", fmt::format("pp={}", stages), "pipedream", 6));
    const Trained delayed(piped("gpt2", fmt::format("pp={}", stages), "pipedream-2bw", 6));
    for (int i = 0; i < stages; ++i) {
      SCOPED_TRACE(fmt::format("stage {} of {}", i, stages));
      // Bytes of a weight that the gradients read, in all its versions, and of what is saved in all slots.
      const auto count = [&](const Trained& trained, const std::string& mark) {
        std::map<std::string, int> slots;
        for (const ir::State& state : trained.compiled().roles[static_cast<std::size_t>(i)].module.states)
          if (state.name.find(mark) != std::string::npos) ++slots[state.name.substr(0, state.name.rfind('.'))];
        return slots;
      };
      for (const auto& [name, versions] : count(pipedream, "/version.")) EXPECT_EQ(1 + versions, stages - i) << name;
      EXPECT_EQ(count(pipedream, "/version.").empty(), i == stages - 1);
      EXPECT_FALSE(count(delayed, "/version.").empty());
      for (const auto& [name, versions] : count(delayed, "/version.")) EXPECT_EQ(1 + versions, 2) << name;
      EXPECT_FALSE(count(pipedream, "flight/").empty());
      for (const auto& [name, slots] : count(pipedream, "flight/")) EXPECT_EQ(slots, stages - i) << name;
      for (const auto& [name, slots] : count(delayed, "flight/")) EXPECT_EQ(slots, stages - i) << name;
    }
  }
}

TEST(AsyncPipeline, TrainsInBf16) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    train::Config config = piped("gpt2", "pp=2", pipeline, 4);
    Piped f32(config);
    config.train.precision = "bf16";
    Piped bf16(config);
    f32.train(12);
    bf16.train(12);
    EXPECT_LT(bf16.losses().back(), 0.97 * bf16.losses().front());
    EXPECT_NEAR(bf16.losses().back(), f32.losses().back(), 0.02 * f32.losses().back());
  }
}

// One micro-batch at a time is training without delays, so that compressed gradients and their errors are those of a
// synchronous pipeline.
TEST(AsyncPipeline, CompressesTheGradientsOfItsReplicas) {
  for (const char* kind : {"bf16", "int8", "powersgd:2"}) {
    SCOPED_TRACE(kind);
    const auto compressed = [&](const char* pipeline, int micro_batches) {
      train::Config config = piped("gpt2", "pp=2", pipeline, micro_batches);
      config.train.clip = 0;  // which stages do by their own norms
      config.parallel.compress = kind;
      return over_mesh(config, "pp=2,dp=2");
    };
    Trained synchronous(compressed("1f1b", 1));
    Trained delayed(compressed("pipedream", 1));
    synchronous.train(5);
    delayed.train(5);
    expect_equal_training(synchronous, delayed, 1e-5);
    for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
      Trained several(compressed(pipeline, 3));
      several.train(8);
      EXPECT_LT(several.losses().back(), several.losses().front());
      EXPECT_EQ(several.session().highest_offset(), several.compiled().arena_bytes());
    }
  }
}

// What is in flight, and the versions of weights, wait in another tier.
TEST(AsyncPipeline, OffloadsToTheBit) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    train::Config config = wider_model("gpt2");
    config.model.tie_embeddings = false;
    config.train.batch = 12;
    config.train.micro_batch = 3;
    config.parallel.pipeline = pipeline;
    train::resolve_model(config, config.model.vocab);
    config = over_mesh(config, "pp=2");
    Trained resident(config);
    resident.train(4);
    for (const char* offload : {"optimizer", "activations", "weights", "all"}) {
      SCOPED_TRACE(fmt::format("{} {}", pipeline, offload));
      config.memory.offload = offload;
      config.memory.offload_policy = "all";
      Trained offloaded(config);
      EXPECT_GT(offloaded.compiled().tier_bytes(2), 0U);
      EXPECT_LT(offloaded.compiled().arena_bytes(), resident.compiled().arena_bytes());
      offloaded.train(4);
      expect_same_bits(resident, offloaded);
      const data::Batch rows = batch_of(config, 9);
      EXPECT_EQ(offloaded.session().evaluate(rows), resident.session().evaluate(rows));
      offloaded.session().predict(std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context)));
      EXPECT_EQ(offloaded.session().highest_offset(), offloaded.compiled().arena_bytes());
    }
  }
}

// Steps of a warm-up are those without compression; then the pipeline is drained, and gradients are compressed.
TEST(AsyncPipeline, WarmsUpBeforeItCompresses) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    for (const auto& [kind, optimizer] : {std::pair{"onebit", "adamw"}, {"onebit", "sgd"}, {"topk:0.3", "sgd"}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", pipeline, kind, optimizer));
      train::Config plain = piped("llama", "pp=2,dp=2", pipeline, 3);
      plain.train.optimizer = optimizer;
      plain.train.clip = 0;  // which each rank would take of its own terms
      train::Config config = plain;
      config.parallel.compress = kind;
      config.parallel.compress_warmup = 3;
      train::check(config);
      Trained exact(plain);
      Trained compressed(config);
      exact.train(3);  // to where the pipeline is empty
      exact.train(3);
      compressed.train(6);
      for (std::size_t i = 0; i < 6; ++i) {
        const double apart = std::abs(compressed.losses()[i] - exact.losses()[i]);
        EXPECT_LE(apart, (i < 3 ? 2e-5 : 0.05) * exact.losses()[i]) << i;
        if (i == 5) {
          EXPECT_GT(apart, 1e-6 * exact.losses()[i]);
        }
      }
      const data::Batch rows = batch_of(config, 9);
      compressed.session().evaluate(rows);
      compressed.session().predict(std::span(rows.tokens).first(static_cast<std::size_t>(config.model.context)));
      EXPECT_EQ(compressed.session().highest_offset(), compressed.compiled().arena_bytes());
    }
}

// To where one rank comes, give or take what stale weights cost. TRIREME_STEPS=300 is of the quickstart's size.
TEST(AsyncPipeline, Converges) {
  const char* asked = std::getenv("TRIREME_STEPS");
  const std::int64_t steps = asked == nullptr ? 60 : std::atoll(asked);
  const auto end_of = [&](const std::string& mesh, const std::string& pipeline) {
    train::Config config = small_model("llama");
    config.model.layers = 4;
    config.model.tie_embeddings = false;
    config.train.batch = 8;
    config.train.micro_batch = 2;
    config.train.lr = 3e-3;
    if (asked != nullptr) {
      config.model.width = 128;
      config.model.ffn = 0;
      config.model.kv_heads = 0;
      config.model.context = 128;
      config.model.vocab = 256;
    }
    config.parallel.pipeline = pipeline;
    train::resolve_model(config, config.model.vocab);
    Piped piped(over_mesh(config, mesh));
    piped.train(steps);
    const std::vector<double>& losses = piped.losses();
    double sum = 0;
    for (std::size_t i = losses.size() - 10; i < losses.size(); ++i) sum += losses[i] / 10;
    EXPECT_LT(sum, 0.7 * losses.front());
    return sum;
  };
  const double synchronous = end_of("pp=2", "1f1b");
  for (const char* pipeline : {"pipedream", "pipedream-2bw"})
    EXPECT_LT(end_of("pp=2", pipeline), 1.1 * synchronous) << pipeline;
}

TEST(AsyncPipeline, EvaluatesWithTheNewestWeights) {
  const train::Config config = piped("gpt2", "pp=2", "pipedream", 4);
  Piped trained(config);
  trained.train(5);
  train::Config plain = config;
  plain.parallel = {};
  Trained one(plain);
  for (const auto& [name, values] : trained.trained().state())
    one.session().write_state(name, 0, std::as_bytes(std::span(values)));
  plain.train.batch = plain.train.micro_batch;
  const data::Batch held_out = batch_of(plain, 99);
  const double expected = one.session().evaluate(held_out).loss;
  EXPECT_NEAR(trained.trained().session().evaluate(held_out).loss, expected, 1e-6 * expected);
}

std::string refusal(const train::Config& config) {
  try {
    const Trained trained(config);
  } catch (const Error& e) {
    return e.message();
  }
  return {};
}

std::string schedule_file(const std::string& text) {
  const auto file = std::filesystem::path(::testing::TempDir()) / fmt::format("async_{}.schedule", ::getpid());
  std::ofstream(file) << text;
  return "file:" + file.string();
}

// From a file, the schedules that have names train the same bits; one of one's own, whose first stage is a micro-batch
// further ahead, like the same rules.
TEST(AsyncPipeline, SchedulesOfOnesOwn) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(name);
    train::Config config = piped("llama", "pp=2", name, 4);
    Piped named(config);
    named.train(3);
    config.parallel.pipeline = schedule_file(program::to_text(
        program::make_schedule({.pipeline = program::parse_pipeline(name), .stages = 2, .micro_batches = 4})));
    Piped given(config);
    given.train(3);
    EXPECT_EQ(named.losses(), given.losses());
    EXPECT_EQ(named.trained().state(), given.trained().state());
  }
  const std::string last = "F0 B0 U F1 B1 U F2 B2 U F3 B3 U\n";
  const std::string own = "fill\nF0 F1 F2 B0 U F3 B1 U\n" + last + "steady\nF0 B2 U F1 B3 U F2 B0 U F3 B1 U\n" + last +
                          "drain\nB2 U B3 U\n-\n";
  train::Config config = piped("mlp", "pp=2", "pipedream", 4);
  config.parallel.pipeline = schedule_file(own);
  expect_like_reference(config, 7, {2, 0});
  std::string late = own;
  late.replace(late.find("F0 F1 F2 B0 U F3 B1 U"), 21, "F0 F1 F2 F3 B0 U B1 U");
  config.parallel.pipeline = schedule_file(late);
  EXPECT_NE(refusal(config).find("stage 0 has 4 micro-batches in flight at F3"), std::string::npos) << refusal(config);
}

// The last stage makes its gradients long before the first one takes them, which is far ahead of it.
TEST(AsyncPipeline, AStageMayBeFarAhead) {
  const std::string last = "F0 B0 U F1 B1 U F2 B2 U F3 B3 U F4 B4 U F5 B5 U\n";
  train::Config config = piped("mlp", "pp=2", "pipedream", 6);
  config.parallel.pipeline = schedule_file("fill\nF0 F1 F2 F3 F4 F5 B0 U\n" + last +
                                           "steady\nF0 B1 U F1 B2 U F2 B3 U F3 B4 U F4 B5 U F5 B0 U\n" + last +
                                           "drain\nB1 U B2 U B3 U B4 U B5 U\n-\n");
  expect_like_reference(config, 7, {5, 0});
}

// What a part of the program would have to know of the part before.
TEST(AsyncPipeline, SchedulesOfOnesOwnWhosePartsDoNotEndAreRefused) {
  train::Config config = piped("mlp", "pp=2", "pipedream", 2);
  const auto said = [&](const std::string& schedule) {
    config.parallel.pipeline = schedule_file(schedule);
    return refusal(config);
  };
  const std::string both = "B0 U F0 B1 U F1\n";
  EXPECT_NE(said("fill\nF0 F1\nF0 B0 U F1 B1 U\nsteady\n" + both + "F0 B0 U F1 B1 U\ndrain\nB0 U B1 U\n-\n")
                .find("fill of an asynchronous schedule ends each stage that is ahead with U, and stage 0 with F1"),
            std::string::npos);
  EXPECT_NE(said("fill\nF0 B0 U F1\nF0 B0 U F1 B1 U\nsteady\nF0 B1 U B0 U F1\nF0 B0 U F1 B1 U\ndrain\nB1 U\n-\n")
                .find("ends each stage that is ahead with U"),
            std::string::npos);
  EXPECT_NE(said("fill\nF0 F1\nF0 B0 F1 B1 U\nsteady delayed\nB0 F0 B1 U F1\nF0 B0 F1 B1 U\ndrain\nB0 B1 U\n-\n")
                .find("fill of a delayed schedule ends each stage that is ahead with a backward, and stage 0 with F1"),
            std::string::npos);
  const std::string ahead =
      "fill\nF0 F1 B0 U\nF0 F1 B0 U\nsteady\nF0 B1 U F1 B0 U\nF0 B1 U F1 B0 U\ndrain\nB1 U\nB1 U\n";
  EXPECT_NE(said(ahead).find("the last stage ends each part with what it has begun"), std::string::npos) << said(ahead);
}

TEST(AsyncPipeline, RefusesWhatDoesNotGoWithIt) {
  train::Config fp16 = piped("gpt2", "pp=2", "pipedream", 4);
  fp16.train.precision = "fp16";
  EXPECT_NE(refusal(fp16).find("the nearest is \"bf16\""), std::string::npos) << refusal(fp16);
  train::Config tied = piped("gpt2", "pp=2", "pipedream", 4);
  tied.model.tie_embeddings = true;
  EXPECT_NE(refusal(tied).find("tie_embeddings = false"), std::string::npos) << refusal(tied);
  const train::Config few = piped("mlp", "pp=3", "pipedream-2bw", 2);
  EXPECT_NE(refusal(few).find("at least as many micro-batches as stages"), std::string::npos) << refusal(few);
}

}  // namespace
}  // namespace trireme::testing
