#include "trireme/simulator/simulate.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>

#include "trireme/core/error.h"
#include "trireme/train/compile.h"
#include "trireme/train/registry.h"

namespace trireme::simulator {
namespace {

class Simulated : public ::testing::Test {
 protected:
  compiler::Compiled compile(const std::vector<std::string>& settings) {
    std::vector<std::string> all = {"model.vocab=256",     "runtime.device=cpu",  "train.batch=16",
                                    "model.layers=4",      "train.micro_batch=1", "output.staging=1MiB",
                                    "train.precision=bf16"};
    all.insert(all.end(), settings.begin(), settings.end());
    train::Config config = train::parse_config("", "test", all);
    train::resolve_model(config, 256);
    return train::compile(config, registry_, {.threads = 1, .staging = 1 << 20});
  }
  static cluster::Cluster h100() { return cluster::load_cluster("h100"); }

  train::Registry registry_;
};

TEST_F(Simulated, AnActorForEachRoleWhoseKindsAddUpToTheStep) {
  for (const char* mesh : {"dp=1", "dp=4", "tp=2", "pp=2", "pp=2,dp=2,tp=2", "pp=4,dp=4"}) {
    const compiler::Compiled compiled = compile({std::string("parallel.mesh=") + mesh});
    const Simulation s = simulate(compiled, h100());
    EXPECT_EQ(s.cast.actors.size(), compiled.roles.size()) << mesh;
    EXPECT_GT(s.step_seconds, 0) << mesh;
    for (std::size_t a = 0; a < s.cast.actors.size(); ++a)
      EXPECT_NEAR(s.by_actor[a].total(), s.step_seconds, 1e-9) << mesh;
    EXPECT_NEAR(s.mean.total(), s.step_seconds, 1e-9);
    EXPECT_EQ(s.mean.bubble > 0, compiled.plan.stages() > 1) << mesh;
    EXPECT_EQ(s.mean.exposed_communication > 0, compiled.ranks() > 1) << mesh;
    EXPECT_LT(s.mfu(), 1);
    EXPECT_TRUE(s.fits);
  }
}

TEST_F(Simulated, MoreRanksMakeAStepFasterAndFewerBytesPerSecondSlower) {
  const std::vector<std::string> size = {"model.width=1024", "model.heads=8", "model.context=1024"};
  const auto step = [&](const std::string& mesh, const cluster::Cluster& on) {
    std::vector<std::string> settings = size;
    settings.push_back("parallel.mesh=" + mesh);
    return simulate(compile(settings), on).step_seconds;
  };
  const double one = step("dp=1", h100());
  const double four = step("dp=4", h100());
  EXPECT_LT(four, one / 2);
  EXPECT_GT(four, one / 4);
  cluster::Cluster slow = h100();
  slow.inside.bandwidth /= 100;
  slow.inside.collective_bandwidth /= 100;
  EXPECT_GT(step("dp=4", slow), 1.2 * four);
  EXPECT_EQ(step("dp=1", slow), one);
}

// Where links cost nothing, the very programs order themselves as the schedules' laws do.
TEST_F(Simulated, PipelinesHaveBubblesInTheOrderOfTheirLaws) {
  cluster::Cluster c = h100();
  c.inside = {.bandwidth = 1e18};
  c.step = 0;
  c.device.communication_slowdown = 1;
  const auto bubble = [&](const std::string& pipeline) {
    const compiler::Compiled compiled =
        compile({"model.family=mlp", "model.layers=8", "model.width=2048", "train.batch=64", "train.micro_batch=4",
                 "parallel.mesh=pp=4", "parallel.pipeline=" + pipeline, "data.images=synthetic", "model.image=8"});
    const Simulation s = simulate(compiled, c);
    return s.mean.bubble / s.step_seconds;
  };
  const double plain = bubble("gpipe");
  EXPECT_LT(bubble("zero-bubble"), plain);
  EXPECT_GT(bubble("sequential"), 2 * plain);
}

TEST_F(Simulated, ASlowRankIsApartAndHoldsUpTheOthers) {
  const compiler::Compiled compiled = compile({"parallel.mesh=dp=4,tp=2", "model.width=256", "model.heads=4"});
  cluster::Cluster c = h100();
  const double even = simulate(compiled, c).step_seconds;
  c.ranks = {{.first = 3, .last = 3, .speed = 0.5}};
  const Simulation s = simulate(compiled, c);
  // Itself, its peer along tp, those that meet it along dp, and those that meet its peer there.
  EXPECT_EQ(s.cast.actors.size(), 4U);
  EXPECT_GT(s.step_seconds, 1.3 * even);
  int ranks = 0;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    ranks += s.cast.ranks[a];
    if (s.cast.rank[a] == 3)
      EXPECT_GT(s.by_actor[a].compute, 1.5 * s.by_actor[0].compute);
    else
      EXPECT_LT(s.by_actor[a].compute, 1.1 * s.by_actor[0].compute);
  }
  EXPECT_EQ(ranks, 8);
  c.ranks = {{.first = 8, .last = 8, .speed = 0.5}};
  EXPECT_THROW(simulate(compiled, c), Error);
}

// What a GPU launches together or replays is in the program, and pays for launches as the device says.
TEST_F(Simulated, LaunchGroupsAndCaptureRegionsPayForTheirLaunches) {
  compiler::Compiled compiled = compile({"parallel.mesh=dp=1", "train.micro_batch=0"});
  cluster::Cluster c = h100();
  c.device.launch = 1e-3;  // more than any kernel takes
  c.device.graph_launch = 5e-3;
  c.device.graph_kernel = 1e-4;
  c.step = 0;
  program::Program* step = nullptr;
  for (program::Program& p : compiled.roles.front().programs)
    if (p.name == "step") step = &p;
  ASSERT_NE(step, nullptr);
  const auto launched = [&](std::size_t i) {
    return step->instructions[i].kind == program::Instruction::Kind::launch ||
           step->instructions[i].kind == program::Instruction::Kind::copy;
  };
  const auto seconds = [&] { return simulate(compiled, c).step_seconds; };
  const double each = seconds();
  std::size_t first = 0;
  while (!(launched(first) && launched(first + 1) && launched(first + 2))) ++first;
  const auto at = static_cast<std::int32_t>(first);
  step->launch_groups = {{at, at + 3}};
  EXPECT_NEAR(seconds(), each - 2e-3, 1e-9);
  step->launch_groups.clear();
  const auto size = static_cast<std::int32_t>(step->instructions.size());
  step->capture_regions = {{0, size, {}, {}}};
  double kernels = 0;
  for (std::size_t i = 0; i < step->instructions.size(); ++i) kernels += launched(i) ? 1 : 0;
  EXPECT_NEAR(seconds(), each - kernels * 9e-4 + 5e-3, 1e-9);
  // Without figures of its own a replay pays one launch, and each of its kernels a quarter.
  c.device.graph_launch = c.device.graph_kernel = 0;
  EXPECT_NEAR(seconds(), each - kernels * 7.5e-4 + 1e-3, 1e-9);
  // Older software launches one by one.
  c.software[c.generation].captures = false;
  EXPECT_EQ(seconds(), each);
  step->capture_regions.clear();
  EXPECT_EQ(seconds(), each);
}

TEST_F(Simulated, TheTraceHasEveryInstructionInTheFormatOfTheRuntime) {
  const compiler::Compiled compiled = compile({"parallel.mesh=pp=2,dp=2"});
  const Simulation s = simulate(compiled, h100());
  const auto trace = nlohmann::json::parse(trace_json(s));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  std::size_t instructions = 0;
  for (const Actor& actor : s.cast.actors) instructions += actor.program->instructions.size();
  EXPECT_EQ(trace["traceEvents"].size(), instructions + s.cast.actors.size());
  const auto& event = trace["traceEvents"][1];
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["pid"], 0);
  EXPECT_EQ(event["tid"], 0);
  EXPECT_EQ(event["cat"], "forward");
  for (const char* key : {"name", "ts", "dur"}) EXPECT_TRUE(event.contains(key)) << key;
}

// A server's link carries what all its workers push and pull.
TEST_F(Simulated, ServersTakeAndGiveWhatTheirWorkersPushAndPull) {
  cluster::Cluster c = h100();
  c.inside.latency = c.inside.start = c.step = 0;
  c.inside.bandwidth = 1e9;  // nothing else matters
  c.device.communication_slowdown = 1;
  const auto step = [&](int workers, int servers, const std::string& mode) {
    const compiler::Compiled compiled =
        compile({fmt::format("parallel.mesh=dp={}", workers), "train.micro_batch=0", "parallel.server=" + mode,
                 fmt::format("parallel.servers={}", servers)});
    const Simulation s = simulate(compiled, c);
    std::size_t served = 0;
    for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
      const compiler::Role& role = compiled.roles[s.cast.role[a]];
      EXPECT_NEAR(s.by_actor[a].total(), s.step_seconds, 1e-9);
      if (!role.exchange) continue;
      ++served;
      EXPECT_EQ(role.exchange->workers, workers);
      const auto bytes = static_cast<double>(role.exchange->pushed_bytes() + role.exchange->pulled_bytes());
      EXPECT_GT(s.step_seconds, workers * bytes / 1e9) << mode;
      // Pushes begin while the backward pass runs.
      EXPECT_LT(s.step_seconds, workers * bytes / 1e9 + 0.1) << mode;
    }
    EXPECT_EQ(served, static_cast<std::size_t>(servers));
    return s.step_seconds;
  };
  for (const char* mode : {"sync", "async"}) {
    const double two = step(2, 1, mode);
    const double four = step(4, 1, mode);
    EXPECT_NEAR(four / two, 2, 0.2) << mode;
    // Workers that go together push to one server after the other, so that a second one is of little help to them.
    const double shared = step(4, 2, mode);
    if (mode == std::string("sync"))
      EXPECT_LE(shared, four * (1 + 1e-9)) << mode;
    else
      EXPECT_NEAR(shared / two, 1, 0.2) << mode;
  }
}

// Stages have servers of their own.
TEST_F(Simulated, ServersOfStagesAreWalkedWithTheirs) {
  const compiler::Compiled compiled = compile({"parallel.mesh=pp=2,dp=2", "parallel.server=sync"});
  const Simulation s = simulate(compiled, h100());
  EXPECT_EQ(s.cast.actors.size(), compiled.roles.size());
  EXPECT_GT(s.step_seconds, simulate(compile({"parallel.mesh=pp=2,dp=2"}), h100()).step_seconds);
}

// Between two steps the pipeline stays full: no time is spent filling it.
TEST_F(Simulated, AsynchronousPipelinesInTheirSteadyStateHaveHardlyABubble) {
  cluster::Cluster c = h100();
  c.inside = {.bandwidth = 1e18};
  c.step = 0;
  c.device.communication_slowdown = 1;
  const auto simulated = [&](const std::string& pipeline) {
    return simulate(compile({"parallel.mesh=pp=2", "parallel.pipeline=" + pipeline, "model.tie_embeddings=false",
                             "train.batch=4", "model.width=512", "model.heads=4"}),
                    c);
  };
  const Simulation plain = simulated("1f1b");
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    const Simulation s = simulated(pipeline);
    EXPECT_GT(s.step_seconds, 0);
    EXPECT_NEAR(s.mean.total(), s.step_seconds, 1e-9) << pipeline;
    EXPECT_LT(s.mean.bubble / s.step_seconds, plain.mean.bubble / plain.step_seconds) << pipeline;
    EXPECT_GT(s.flops, 0.9 * plain.flops);
    EXPECT_LT(s.flops, 1.3 * plain.flops);
    EXPECT_FALSE(picture(s, 80).empty());
  }
}

// A thousand ranks cost what their roles cost.
TEST_F(Simulated, AThousandRanksTakeSeconds) {
  const compiler::Compiled compiled =
      compile({"model.layers=32", "model.width=1024", "model.heads=16", "model.context=256", "train.batch=1024",
               "parallel.mesh=pp=8,dp=16,tp=8"});
  ASSERT_EQ(compiled.ranks(), 1024);
  const auto begin = std::chrono::steady_clock::now();
  const Simulation s = simulate(compiled, h100());
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20);
  EXPECT_EQ(s.cast.actors.size(), 8U);
}

}  // namespace
}  // namespace trireme::simulator
