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

std::string first_bad(Trained& trained, const train::Config& config, std::int64_t step) {
  const auto bad = trained.session().explain(batch_of(config, step), step, 1e-3, 0);
  return bad ? fmt::format("{} of {}", bad->what, bad->tensor) : "nothing";
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
