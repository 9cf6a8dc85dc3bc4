// Stages of asynchronous pipelines have few programs: what a plan costs to make follows the stages and micro-batches.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "trireme/compiler/async_stage.h"
#include "trireme/compiler/compile.h"
#include "trireme/core/error.h"
#include "trireme/train/compile.h"

namespace trireme::compiler {
namespace {

AsyncStage chosen(int ahead, int micro_batches, bool delayed = false) {
  AsyncStage stage{.micro_batches = micro_batches, .ahead = ahead, .delayed = delayed};
  stage.choose_slots();
  return stage;
}

TEST(AsyncSlots, AreEnoughAndAQuarterMoreAtMost) {
  for (const bool delayed : {false, true})
    for (int ahead = 0; ahead < 32; ++ahead)
      for (int micro_batches = std::max(ahead, 1); micro_batches <= 130; ++micro_batches) {
        const AsyncStage s = chosen(ahead, micro_batches, delayed);
        SCOPED_TRACE(fmt::format("{} ahead of {}", ahead, micro_batches));
        const int most = ahead + 1 + std::max((ahead + 1) / 4, 1);
        EXPECT_GE(s.slots, ahead + 1);
        EXPECT_LE(s.slots, most);
        EXPECT_GE(s.versions, delayed ? 1 : ahead);
        EXPECT_LE(s.versions, delayed ? 1 : most);
        EXPECT_TRUE(s.period() <= ahead + 1 || s.period() * micro_batches <= 128);
        // Each step begins where one before it began.
        const int later = s.period() * micro_batches;
        EXPECT_EQ(later % s.slots, 0);
        EXPECT_EQ(later % std::max(s.versions, 1), 0);
      }
}

// By as many slots as it needs and no more, stage 1 has 105 programs, and all together 448.
TEST(AsyncSlots, FewProgramsTakeTurnsInADeepPipeline) {
  const int stages = 16;
  int programs = 0;
  for (int ahead = 0; ahead < stages; ++ahead) programs += chosen(ahead, 64).period();
  EXPECT_LE(programs, 3 * stages);
  // Few are left as they are, and so are small ones: memory is dearer.
  for (const int micro_batches : {4, 5, 7, 8, 12, 16})
    for (int ahead = 1; ahead < 4; ++ahead) {
      const AsyncStage s = chosen(ahead, micro_batches);
      EXPECT_EQ(s.slots, ahead + 1) << micro_batches;
      EXPECT_EQ(s.versions, ahead) << micro_batches;
    }
}

TEST(AsyncSlots, ADeepPipelineIsCompiledAndProved) {
  const train::Registry registry;
  const std::vector<std::string> settings = {
      "model.family=mlp",   "model.layers=17",      "model.width=8",       "model.image=4",
      "train.batch=16",     "train.micro_batch=1",  "parallel.mesh=pp=16", "parallel.pipeline=pipedream",
      "runtime.device=cpu", "data.images=synthetic"};
  train::Config config = train::parse_config("", "test", settings);
  train::resolve_model(config, 0);
  const Compiled c = train::compile(config, registry, {.threads = 1});
  EXPECT_NO_THROW(check_roles(c));
  std::size_t programs = 0;
  for (const Role& role : c.roles)
    for (const program::Program& program : role.programs) programs += program.name.starts_with("step") ? 1 : 0;
  EXPECT_LE(programs, 80U);
}

// A backward that is split is named, and not what is missing behind its first half.
TEST(AsyncSchedules, SplitBackwardsAreRefusedAsSuch) {
  const auto file = std::filesystem::path(::testing::TempDir()) / fmt::format("split_{}.schedule", ::getpid());
  const auto said = [&](const std::string& schedule, int micro_batches) -> std::string {
    std::ofstream(file) << schedule;
    const std::vector<std::string> settings = {"model.family=mlp",
                                               "model.layers=3",
                                               "model.width=8",
                                               "model.image=4",
                                               fmt::format("train.batch={}", micro_batches),
                                               "train.micro_batch=1",
                                               "data.images=synthetic",
                                               "parallel.mesh=pp=2",
                                               "parallel.pipeline=file:" + file.string()};
    train::Config config = train::parse_config("", "test", settings);
    train::resolve_model(config, 0);
    try {
      train::compile(config, train::Registry(), {.threads = 1});
    } catch (const Error& e) {
      return e.message();
    }
    return {};
  };
  const std::string both = "F0 B1 W1 U F1 B0 W0 U\nF0 B0 W0 U F1 B1 W1 U\n";
  EXPECT_EQ(said("fill\nF0 F1 B0 W0 U\nF0 B0 W0 U F1 B1 W1 U\nsteady\n" + both + "drain\nB1 W1 U\n-\n", 2),
            "parallel.pipeline: an asynchronous schedule has no W0: a backward is whole there; the nearest is "
            "\"pipedream\"");
}

}  // namespace
}  // namespace trireme::compiler
