// A step that is not finite is run again to name the tensor that went bad first, in the order of any other step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "equivalence/training.h"
#include "trireme/core/error.h"

namespace trireme::testing {
namespace {

void spoil(Trained& trained, const std::string& state) {
  const float inf = std::numeric_limits<float>::infinity();
  trained.session().write_state(state, 0, std::as_bytes(std::span(&inf, 1)));
}

std::string first_bad(Trained& trained, const data::Batch& batch, std::int64_t step) {
  const auto bad = trained.session().explain(batch, step, 1e-3, 0);
  return !bad         ? "nothing"
         : bad->input ? bad->input->str()
                      : fmt::format("{} of {}", bad->tensor.what, bad->tensor.tensor);
}

std::string first_bad(Trained& trained, const train::Config& config, std::int64_t step) {
  return first_bad(trained, batch_of(config, step), step);
}

train::Config two_layers(const std::string& model, const std::string& mesh) {
  train::Config config = small_model(model);
  config.train.batch = 12;
  config.train.micro_batch = 4;
  config.model.layers = 2;
  train::resolve_model(config, config.model.vocab);
  return over_mesh(config, mesh);
}

// Each stage meets it at another place of its program, and numbers its instructions for itself.
TEST(WentBad, IsNamedInTheStageWhereItBegan) {
  const train::Config config = two_layers("gpt2", "pp=2");
  for (const auto& [state, tensor] :
       {std::pair("wpe.weight", "wpe."), std::pair("blocks.0.mlp.up.weight", "blocks.0.mlp."),
        std::pair("ln_f.weight", "ln_f.")}) {
    SCOPED_TRACE(state);
    Trained many(config);
    many.train(1);
    spoil(many, state);
    const std::string first = first_bad(many, config, 1);
    EXPECT_NE(first.find(std::string(" of ") + tensor), std::string::npos) << first;
    EXPECT_EQ(many.session().explain(batch_of(config, 1), 1, 1e-3, 0)->rank,
              state == std::string("ln_f.weight") ? 1 : 0);
    for (int again = 0; again < 20; ++again) ASSERT_EQ(first_bad(many, config, 1), first);
  }
}

// Where replicas go bad at the same instruction the first of them is named, whichever thread comes to it first.
TEST(WentBad, IsTheSameOnEveryRun) {
  const train::Config config = two_layers("mlp", "dp=2");
  Trained many(config);
  many.train(1);
  spoil(many, "layers.1.weight");
  const std::string first = first_bad(many, config, 1);
  EXPECT_NE(first.find(" of layers.1."), std::string::npos) << first;
  for (int again = 0; again < 50; ++again) ASSERT_EQ(first_bad(many, config, 1), first);
}

// Values of the batch come before what was made of them, by their place in the global batch whatever ranks there are.
TEST(WentBad, BeginsWithTheBatch) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  struct Case {
    const char* model;
    const char* mesh;
    const char* precision = "f32";
  };
  for (const Case& c :
       {Case{"convnet", "dp=1"}, Case{"convnet", "dp=2"}, Case{"convnet", "dp=2,h=2"}, Case{"mlp", "tp=2"},
        Case{"mlp", "pp=2"}, Case{"mlp", "pp=2,dp=2"}, Case{"mlp", "dp=2", "bf16"}, Case{"convnet", "pp=2", "fp16"}}) {
    SCOPED_TRACE(fmt::format("{}, {}, {}", c.model, c.mesh, c.precision));
    train::Config config = two_layers(c.model, c.mesh);
    config.train.precision = c.precision;
    Trained many(config);
    const data::Batch good = batch_of(config, 0);
    const std::size_t each = good.images.size() / static_cast<std::size_t>(good.rows);
    EXPECT_EQ(first_bad(many, good, 0), "nothing");
    data::Batch batch = good;
    batch.images[9 * each + 2] = nan;
    batch.images[7 * each + each - 3] = -inf;
    EXPECT_EQ(first_bad(many, batch, 0),
              fmt::format("input 'images', sample 7 of the batch, element {} is -inf", each - 3));
    batch = good;
    batch.images[9 * each + 2] = nan;
    EXPECT_FALSE(many.session().step(batch, 0, 1e-3, 0).finite);
    EXPECT_EQ(first_bad(many, batch, 0), "input 'images', sample 9 of the batch, element 2 is NaN");
    batch = good;
    batch.images[1] = 1e6F;
    EXPECT_EQ(first_bad(many, batch, 0),
              c.precision == std::string("fp16")
                  ? "input 'images', sample 0 of the batch, element 1 is 1000000, which f16 cannot represent"
                  : "nothing");
  }
}

// Streams of their own let stages take part in each other's collectives; one instruction after the other they would
// wait for each other for ever. Every program that a step may have is run again.
TEST(WentBad, DoesNotHangWhereStreamsAreNeeded) {
  train::Config config = small_model("gpt2");
  config.model.layers = 7;
  config.parallel.bucket = "16KiB";
  config.train.batch = 16;
  config.train.micro_batch = 4;
  config.train.steps = 6;
  config.train.warmup = 0;
  config.prune.method = "magnitude";
  config.prune.pattern = "heads";
  config.prune.begin = 1;
  config.prune.end = 5;
  config.prune.every = 2;
  train::resolve_model(config, config.model.vocab);
  train::check(config);
  config = over_mesh(config, "pp=2,dp=2", 3);
  Trained many(config);
  many.train(1);
  spoil(many, "blocks.1.ln2.weight");
  std::set<std::string> programs;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    const std::string& program = many.compiled().step_program(step);
    SCOPED_TRACE(program);
    if (!programs.insert(program).second) continue;
    const std::string first = first_bad(many, config, step);
    EXPECT_NE(first.find("blocks.1.ln2"), std::string::npos) << first;
  }
  EXPECT_GT(programs.size(), 1U) << "no step prunes";
}

}  // namespace
}  // namespace trireme::testing
