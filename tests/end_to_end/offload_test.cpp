// Tensors on disk, as a person sees them: the same training, in less memory, and nothing left behind.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <csignal>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class OffloadRun : public Program {
 protected:
  std::vector<std::string> with(std::vector<std::string> more) const {
    std::vector<std::string> all = {"train",
                                    "tiny.toml",
                                    "--model.width=128",
                                    "--model.context=64",
                                    "--train.batch=4",
                                    "--memory.offload=all",
                                    "--memory.offload_policy=all"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(OffloadRun, CheckpointsAndResumedRunsAreThoseOfThePlainRun) {
  done(with({"--memory.offload=none", "--output.dir=plain", "--train.decay_steps=6"}));
  const Finished f = done(with({"--output.dir=whole", "--train.decay_steps=6", "--output.checkpoint_every=2"}));
  EXPECT_NE(f.out.find("disk  "), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("✓"), std::string::npos) << f.out;
  EXPECT_EQ(state("whole", kSteps), state("plain", kSteps));
  done(with({"--output.dir=cut", "--train.decay_steps=6", "--train.steps=3"}));
  done(with({"--output.dir=cut", "--train.decay_steps=6", "--train.steps=6", "--resume"}));
  EXPECT_EQ(state("cut", kSteps), state("plain", kSteps));
  // What was trained from disk goes on in memory, and the other way round.
  done(with({"--output.dir=turned", "--train.decay_steps=6", "--train.steps=3", "--memory.offload=none"}));
  done(with({"--output.dir=turned", "--train.decay_steps=6", "--train.steps=6", "--resume"}));
  EXPECT_EQ(state("turned", kSteps), state("plain", kSteps));
  for (const auto& a : metrics("plain"))
    EXPECT_EQ(a["loss"], metrics("whole")[a["step"].get<std::size_t>() - 1]["loss"]);
  const Finished e = done({"eval", "--from", "whole"});
  EXPECT_NE(e.out.find("loss"), std::string::npos) << e.out;
}

TEST_F(OffloadRun, FoldersThatWillNotDoAreRefused) {
  const std::string missing = refused(with({"--output.dir=run", "--memory.offload_dir=nowhere"}));
  EXPECT_NE(missing.find("memory.offload_dir = \"nowhere\": there is no such folder"), std::string::npos) << missing;
  const std::string proc = refused(with({"--output.dir=run2", "--memory.offload_dir=/proc"}));
  EXPECT_NE(proc.find("memory.offload_dir = \"/proc\""), std::string::npos) << proc;
  const std::string conv = refused(with({"--output.dir=run3", "--memory.offload_policy=conv"}));
  EXPECT_NE(conv.find("memory.offload_policy = \"conv\": this model has no convolution"), std::string::npos) << conv;
}

TEST_F(OffloadRun, AFullDiskIsRefusedBeforeTheFirstStep) {
  fs::create_directory(folder() / "small");
  if (::mount("none", (folder() / "small").c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "cannot mount here";
  const std::string full = refused(with({"--output.dir=run", "--memory.offload_dir=small"}));
  EXPECT_NE(full.find("memory.offload_dir = \"small\": offloaded tensors need"), std::string::npos) << full;
  EXPECT_NE(full.find("free"), std::string::npos) << full;
  EXPECT_TRUE(fs::is_empty(folder() / "small"));
  EXPECT_EQ(::umount((folder() / "small").c_str()), 0);
}

TEST_F(OffloadRun, NothingIsLeftBehindByAKilledRun) {
  fs::create_directory(folder() / "tier");
  Running running(folder(), with({"--output.dir=run", "--memory.offload_dir=tier", "--train.steps=100000"}));
  ASSERT_TRUE(running.wait_until([&] { return exists("run/metrics.jsonl") && lines("run/metrics.jsonl") > 2; }));
  EXPECT_TRUE(fs::is_empty(folder() / "tier"));
  running.signal(SIGKILL);
  EXPECT_EQ(running.wait().code, 128 + SIGKILL);
  EXPECT_TRUE(fs::is_empty(folder() / "tier"));
}

// Weights, gradients and optimizer states of more than four times the limit.
TEST_F(OffloadRun, AModelOfFourTimesTheLimitTrainsWithinIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  const std::vector<std::string> size = {"--model.layers=5",     "--model.width=384", "--model.heads=6",
                                         "--train.batch=1",      "--train.steps=2",   "--data.holdout=0",
                                         "--output.staging=1MiB"};
  const auto train = [&](const std::string& run, std::vector<std::string> more) {
    more.push_back("--output.dir=" + run);
    return done(with(std::move(more)));
  };
  const std::int64_t fixed =
      train("small", {"--train.steps=2", "--data.holdout=0", "--output.staging=1MiB"}).peak_bytes;
  constexpr std::int64_t kLimit = std::int64_t{32} << 20;
  std::vector<std::string> large = size;
  large.emplace_back("--memory.limit=32MiB");
  const Finished f = train("large", large);
  const auto plan = nlohmann::json::parse(read("large/run.json"));
  EXPECT_GT(16 * plan["parameters"].get<std::int64_t>(), 4 * kLimit);
  EXPECT_LT(f.peak_bytes, kLimit + kLimit / 10 + fixed);
}

}  // namespace
}  // namespace trireme::testing
