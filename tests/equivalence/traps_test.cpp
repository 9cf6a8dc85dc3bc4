// What is easily got wrong when a model is cut, each with the test that catches it. Others of the kind are
// PipelineTies.*, PipelineScalars.*, PipelineImages.StatisticsAreTakenOnceUnderRecomputation,
// PipelineMemory.UnderFullRecomputationStagesHoldWhatEntersTheirLayers, TracedPipeline.MessagesGoBeforeSumsOfGradients
// and SpatialParallel.RunningStatisticsOfUnequalSlices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "equivalence/training.h"
#include "trireme/comm/threads/world.h"

namespace trireme::testing {
namespace {

train::Config narrow(const std::string& name, std::int64_t vocab) {
  train::Config config = small_model(name);
  config.model.width = 6;
  config.model.heads = 3;
  config.model.kv_heads = name == "llama" ? 3 : 0;
  config.model.ffn = 0;
  config.model.context = 12;
  config.model.vocab = vocab;
  config.train.batch = 12;
  config.train.micro_batch = 6;
  train::resolve_model(config, config.model.vocab);
  return config;
}

// A parameter that all ranks of tp have counts once, and all of the norm goes in few messages however many parameters
// there are.
TEST(Traps, AReplicatedParameterCountsOnceInTheNorm) {
  train::Config plain = small_model("gpt2");
  plain.train.batch = 12;
  plain.train.clip = 0.1;
  plain.model.layers = 4;
  Trained one(plain);
  std::vector<float> norms;
  for (int step = 0; step < 3; ++step) norms.push_back(one.step().grad_norm);
  for (const char* mesh : {"tp=2", "tp=2,dp=2", "pp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    Trained many(over_mesh(plain, mesh));
    for (const float norm : norms) EXPECT_NEAR(many.step().grad_norm, norm, 2e-5 * norm);
    for (const train::Role& role : many.compiled().roles) {
      int scalars = 0;
      for (const program::Instruction& i : role.program("step").instructions)
        scalars += i.kind == program::Instruction::Kind::collective && i.phase == ir::Phase::update &&
                   std::all_of(i.outputs.begin(), i.outputs.end(),
                               [](const program::Operand& o) { return o.type.elements() == 1; });
      EXPECT_LE(scalars, 3) << "of " << role.name;
    }
  }
}

// A mask follows from a row's and an element's place in the whole, not in the shard.
TEST(Traps, DropoutMasksAreThoseOfOneRank) {
  for (const char* name : {"gpt2", "llama"})
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{} sequence={}", name, sequence));
      train::Config plain = narrow(name, 61);
      plain.model.dropout = 0.5;
      train::Config config = plain;
      config.parallel.sequence = sequence;
      for (const char* mesh : {"tp=3", "dp=2,tp=3", "pp=2,tp=3"}) {
        Trained one(plain);
        Trained many(over_mesh(config, mesh));
        one.train(3);
        many.train(3);
        expect_equal_training(one, many, 2e-5);
      }
    }
}

// 50 words over three ranks are 17 rows each, of which the last rank has one too many.
TEST(Traps, PaddingOfTheVocabularyNeverWinsAndStaysZero) {
  for (const char* name : {"gpt2", "llama"}) {
    SCOPED_TRACE(name);
    const train::Config plain = narrow(name, 50);
    Trained one(plain);
    Trained many(over_mesh(plain, "tp=3"));
    one.train(20);
    many.train(20);
    expect_equal_training(one, many, 2e-5);
    train::Rank& last = many.session().rank(2);
    int tables = 0;
    for (const ir::State& state : last.role().module.states) {
      if (!state.trained || state.global_shape()[0] != 50 || state.type.shape[0] != 17) continue;
      std::vector<float> values(static_cast<std::size_t>(state.type.elements()));
      last.read_state(state.name, 0, std::as_writable_bytes(std::span(values)));
      for (std::size_t i = values.size() - 6; i < values.size(); ++i) EXPECT_EQ(values[i], 0) << state.name;
      EXPECT_NE(values.front(), 0);
      ++tables;
    }
    EXPECT_GT(tables, 0);
  }
}

// Every pipeline of these tests has such a link (training.h).
TEST(Traps, EverySendWaitsForItsReceive) {
  comm::threads::World world(2, {.link = kWaitingSends});
  comm::Communicator from = world.communicator(0);
  comm::Communicator to = world.communicator(1);
  std::byte sent{7};
  std::byte received{0};
  comm::Request request = from.start_send(std::span<const std::byte>(&sent, 1), 1, 3);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(request.test());
  to.recv(std::span(&received, 1), 0, 3);
  request.wait();
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace trireme::testing
