#include "trireme/train/settle_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "trireme/comm/threads/world.h"
#include "trireme/core/error.h"
#include "trireme/train/same_run.h"

namespace trireme::train {
namespace {

class SettlePlan : public ::testing::Test {
 protected:
  static Config config(const std::vector<std::string>& more) {
    std::vector<std::string> settings = {"model.family=gpt2",   "model.layers=3",     "model.width=32",
                                         "model.heads=2",       "model.context=16",   "model.vocab=256",
                                         "train.batch=12",      "runtime.device=cpu", "parallel.mesh=pp=2",
                                         "train.micro_batch=2", "train.lr=1e-2",      "output.staging=64KiB"};
    settings.insert(settings.end(), more.begin(), more.end());
    Config config = parse_config("", "test", settings);
    resolve_model(config, config.model.vocab);
    return config;
  }
  static CompileOptions with_threads(int threads) {
    return {.threads = threads, .step_alone = true, .transport = comm::TransportKind::mpi};
  }
  // A limit that is just enough for one thread with nothing recomputed, and asks for something of those whose
  // workspaces are larger.
  Config limited() const {
    const std::string pipeline = "parallel.pipeline=zero-bubble:auto";
    const Compiled plain = compile(config({pipeline}), registry_, with_threads(1));
    return config({pipeline, "memory.remat=optimal", fmt::format("memory.limit={}B", plain.arena_bytes())});
  }

  static constexpr std::array<int, 2> kThreads = {1, 4};
  Registry registry_;
};

// Two processes whose machines would come to different plans: one has more threads, and so larger workspaces.
TEST_F(SettlePlan, ProcessesFollowTheFirst) {
  const Config config = limited();
  const auto together = [&](bool turned, const auto& plan) {
    std::array<Compiled, 2> compiled;
    comm::threads::run(2, {.link = "", .timeout = 60}, [&](comm::Communicator& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      const CompileOptions options = with_threads(kThreads[turned ? 1 - rank : rank]);
      compiled[rank] = compile(plan(options, world), config, options);
      check_same_programs(compiled[rank], world);
    });
    return compiled;
  };
  EXPECT_THROW(together(false, [&](const CompileOptions& options,
                                   comm::Communicator&) { return make_plan(config, registry_, options); }),
               Error)
      << "nothing is left to disagree about";
  for (const bool turned : {false, true}) {
    const auto compiled = together(turned, [&](const CompileOptions& options, comm::Communicator& world) {
      return settle_plan(config, registry_, options, &world);
    });
    EXPECT_EQ(compiled[0].plan.recompute, compiled[1].plan.recompute);
    EXPECT_EQ(compiled[0].plan.max_held, compiled[1].plan.max_held);
    EXPECT_EQ(compiled[0].plan.stage_cuts, compiled[1].plan.stage_cuts);
    // Each has its own threads, and the limit is kept by both.
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(compiled[rank].plan.threads, kThreads[turned ? 1 - rank : rank]);
      EXPECT_LE(compiled[rank].arena_bytes(), config.memory.limit.count);
    }
  }
}

// Those who follow say nothing of their own about what the first cannot plan.
TEST_F(SettlePlan, ARefusalReachesAll) {
  Config impossible = config({});
  impossible.memory.offload.optimizer = true;
  impossible.memory.offload_tier = OffloadTier::host;
  std::array<std::string, 2> said;
  comm::threads::World world(2, {.link = "", .timeout = 60});
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      comm::Communicator own = world.communicator(rank);
      try {
        settle_plan(impossible, registry_, with_threads(1), &own);
      } catch (const comm::Aborted& e) {
        said[static_cast<std::size_t>(rank)] = fmt::format("aborted: {}", e.what());
      } catch (const Error& e) {
        said[static_cast<std::size_t>(rank)] = fmt::format("refused: {}", e.what());
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(said[0].starts_with("refused: memory.offload_tier = \"host\"")) << said[0];
  EXPECT_TRUE(said[1].starts_with("aborted: ")) << said[1];
  EXPECT_NE(said[1].find("memory.offload_tier = \"host\""), std::string::npos) << said[1];
}

TEST_F(SettlePlan, AProcessThatCannotFollowSaysSo) {
  // Built otherwise: the same settings make another model there.
  const std::array<Config, 2> configs = {config({}), config({"model.width=48"})};
  try {
    comm::threads::run(2, {.link = "", .timeout = 60}, [&](comm::Communicator& world) {
      settle_plan(configs[static_cast<std::size_t>(world.rank())], registry_, with_threads(1), &world);
      world.barrier();
    });
    FAIL() << "it was followed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "rank 1 cannot follow the plan of rank 0: the plan of rank 0 was made for another model"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace trireme::train
