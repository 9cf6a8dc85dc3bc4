// A sequence that grows piece by piece gives what the whole of it gives.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "equivalence/training.h"
#include "trireme/core/error.h"
#include "trireme/train/sample_text.h"

namespace trireme::testing {
namespace {

struct Case {
  std::string model;
  std::string precision;
  std::string mesh = "auto";  // that generates; one rank trains
};

double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

class Generate : public ::testing::TestWithParam<Case> {
 protected:
  static train::Config make_config() {
    train::Config c = small_model(GetParam().model);
    c.train.precision = GetParam().precision;
    c.model.context = 80;
    return c;
  }

  // The trained weights, compiled to generate.
  void compile(std::int64_t sequence) {
    train::Config config = config_;
    config.train.batch = config.train.micro_batch = 1;
    config.parallel.mesh = GetParam().mesh;
    use(config, {.threads = 2, .purpose = train::Purpose::generate, .sequence = sequence});
  }

  void use(const train::Config& config, const train::CompileOptions& options) {
    compiled_ = train::compile(config, registry_, options);
    session_ = std::make_unique<train::Session>(
        compiled_, train::SessionOptions{.threads = 2, .link = compiled_.plan.stages() > 1 ? kWaitingSends : ""});
    for (const ir::State& state : compiled_.saved_states())
      session_->write_state(state.name, 0, trained_.session().state(state.name));
    session_->refresh_copies();
  }

  std::vector<std::int32_t> tokens(std::size_t count) const {
    const data::Batch batch = batch_of(config_, 5);
    return {batch.tokens.begin(), batch.tokens.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  // Of every position, from the program that sees the whole sequence.
  std::vector<float> expected(const std::vector<std::int32_t>& sequence) {
    const auto logits = trained_.session().predict(sequence);
    return {logits.begin(), logits.end()};
  }

  train::Config config_ = make_config();
  Trained trained_ = [this] {
    Trained t(config_, {.threads = 2});
    t.train(3);
    return t;
  }();
  train::Registry registry_;
  train::Compiled compiled_;
  std::unique_ptr<train::Session> session_;
};

TEST_P(Generate, PiecesOfAnySizeGiveTheLogitsOfTheWhole) {
  compile(0);
  const std::vector<std::int32_t> all = tokens(80);
  const std::vector<float> whole = expected(all);
  const auto vocab = static_cast<std::size_t>(config_.model.vocab);
  const double tolerance = GetParam().precision == "f32" ? 1e-5 : 2e-2;
  for (const std::size_t piece : {1U, 3U, 8U, 11U, 40U, 64U})
    for (std::size_t first = 0; first < all.size(); first += piece) {
      const std::size_t count = std::min(piece, all.size() - first);
      const auto logits = session_->decode(std::span(all).subspan(first, count), static_cast<std::int64_t>(first));
      ASSERT_EQ(logits.size(), vocab);
      const auto last = std::span<const float>(whole).subspan((first + count - 1) * vocab, vocab);
      ASSERT_LE(relative_error(logits, last), tolerance) << first << " + " << count;
    }
  // Throws when a guard byte has changed.
  EXPECT_EQ(session_->highest_offset(), compiled_.arena_bytes());
}

TEST_P(Generate, GreedyTokensAreThoseOfTheWholeSequence) {
  if (GetParam().precision != "f32") return;  // near ties may fall either way
  const std::vector<std::int32_t> prompt = tokens(19);
  const train::SampleOptions options{.tokens = 60, .sampling = {.temperature = 0}};
  compile(79);
  EXPECT_EQ(train::sample_tokens(*session_, prompt, options),
            train::sample_tokens(trained_.session(), prompt, options));
}

// Keys and values in 8 bits: close to the whole sequence's logits, and the same however the sequence is cut.
TEST_P(Generate, EightBitCachesGiveTheSameForAnyPieces) {
  config_.memory.kv_cache = "int8";
  compile(0);
  const std::vector<std::int32_t> all = tokens(80);
  const std::vector<float> whole = expected(all);
  const auto vocab = static_cast<std::size_t>(config_.model.vocab);
  const bool exact = GetParam().precision == "f32";
  std::vector<float> single;  // token by token
  for (const std::size_t piece : {1U, 3U, 8U, 40U, 64U})
    for (std::size_t first = 0; first < all.size(); first += piece) {
      const std::size_t count = std::min(piece, all.size() - first);
      const auto logits = session_->decode(std::span(all).subspan(first, count), static_cast<std::int64_t>(first));
      if (piece == 1) single.insert(single.end(), logits.begin(), logits.end());
      const std::size_t at = (first + count - 1) * vocab;
      // Products of pieces of other sizes round differently, and a code may fall to the other side.
      ASSERT_LE(relative_error(logits, std::span<const float>(single).subspan(at, vocab)), exact ? 1e-3 : 2e-2)
          << first << " + " << count;
      ASSERT_LE(relative_error(logits, std::span<const float>(whole).subspan(at, vocab)), exact ? 1e-2 : 2e-2);
    }
  EXPECT_EQ(session_->highest_offset(), compiled_.arena_bytes());
  for (const compiler::Role& role : compiled_.roles)
    for (const ir::State& state : role.module.states)
      if (state.category == ir::Category::cache && !state.name.ends_with("/scale")) {
        EXPECT_EQ(state.type.dtype, DType::i8) << state.name;
      }
}

TEST_P(Generate, GoesOnBeyondTheContext) {
  compile(0);
  const std::vector<std::int32_t> prompt = tokens(70);
  const train::SampleOptions options{.tokens = 120, .sampling = {.temperature = 0}};
  const std::vector<std::int32_t> made = train::sample_tokens(*session_, prompt, options);
  EXPECT_EQ(made.size(), 120U);
  EXPECT_EQ(train::sample_tokens(*session_, prompt, options), made);
}

TEST_P(Generate, RefusesMoreThanTheCachesHold) {
  compile(20);
  const std::vector<std::int32_t> all = tokens(80);
  EXPECT_ANY_THROW(session_->decode(std::span(all).first(60), 0));
  EXPECT_ANY_THROW(session_->decode(std::span(all).first(1), 1000));
}

// Held-out rows have the same loss wherever they are evaluated.
TEST_P(Generate, EvaluatesAsOneRankDoes) {
  train::Config config = config_;
  config.parallel.mesh = GetParam().mesh;
  config.train.micro_batch = config.train.batch;
  use(config, {.threads = 2, .purpose = train::Purpose::evaluate});
  const data::Batch batch = batch_of(config_, 7);
  const double expected = trained_.session().evaluate(batch).loss;
  EXPECT_NEAR(session_->evaluate(batch).loss, expected, (GetParam().precision == "f32" ? 2e-6 : 5e-3) * expected);
}

std::string name_of(const ::testing::TestParamInfo<Case>& one) {
  std::string name = one.param.model + "_" + one.param.precision;
  if (one.param.mesh != "auto") name += "_" + one.param.mesh;
  std::erase_if(name, [](char c) { return c == '=' || c == ','; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Generate,
                         ::testing::Values(Case{"gpt2", "f32"}, Case{"gpt2", "bf16"}, Case{"llama", "f32"},
                                           Case{"llama", "bf16"}),
                         name_of);
// Stages keep the caches of their layers, ranks along tp those of their heads.
INSTANTIATE_TEST_SUITE_P(Meshes, Generate,
                         ::testing::Values(Case{"gpt2", "f32", "pp=2"}, Case{"gpt2", "bf16", "tp=2,pp=2"},
                                           Case{"llama", "f32", "pp=2,tp=2"}),
                         name_of);

// Of a mesh on which one sequence has nothing to shard, the nearest that works is named.
TEST(GenerateMesh, NamesTheNearestThatWorks) {
  train::Config config = small_model("gpt2");
  config.parallel.mesh = "dp=2,pp=2";
  const train::Registry registry;
  try {
    train::compile(config, registry, {.purpose = train::Purpose::generate});
    FAIL() << "dp has nothing to shard";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the nearest is \"pp=2\""), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trireme::testing
