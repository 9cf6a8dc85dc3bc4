// Runs that fail on the way: exit code 1, a message that says why, and nothing half written.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class NotFinite : public Program {
 protected:
  // The last good state was saved under the step before the bad one, and equals that of a run which ends there.
  void expect_explained(const std::vector<std::string>& keys) const {
    std::vector<std::string> arguments = {
        "train", "tiny.toml", "--output.dir=run", "--train.warmup=0", "--train.schedule=constant", "--train.steps=50"};
    arguments.insert(arguments.end(), keys.begin(), keys.end());
    const Finished f = run(arguments);
    EXPECT_EQ(f.code, 1) << f.out << f.err;
    const std::size_t at = f.err.rfind("error: step ");
    ASSERT_NE(at, std::string::npos) << f.err;
    const std::string error = f.err.substr(at);
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
    const std::int64_t bad = std::stoll(error.substr(std::string("error: step ").size()));
    ASSERT_GT(bad, 0) << error;
    EXPECT_NE(error.find("first tensor to go bad is '"), std::string::npos) << error;
    EXPECT_NE(error.find("saved as step " + std::to_string(bad - 1)), std::string::npos) << error;

    EXPECT_NE(read("run/log.txt").find("step " + std::to_string(bad) + ": "), std::string::npos);

    const auto lines = metrics("run");
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(bad - 1));
    for (const nlohmann::json& line : lines) EXPECT_TRUE(line["loss"].is_number()) << line;
    EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(bad - 1)});

    for (std::string& argument : arguments) {
      if (argument == "--train.steps=50") argument = "--train.steps=" + std::to_string(bad - 1);
      if (argument == "--output.dir=run") argument = "--output.dir=good";
    }
    done(arguments);
    EXPECT_EQ(state("run", bad - 1), state("good", bad - 1));
  }
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Before it starts, a run is refused that the process has no room for.
TEST_F(Program, LimitsOfTheProcessAreRoomToo) {
  const auto limited = [&](const std::string& limit, const std::string& words) {
    const std::string command =
        "cd " + folder().string() + " && ulimit " + limit + " && " + program_path() + " train tiny.toml " + words;
    const int status = std::system((command + " > out.txt 2> err.txt").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string large = "--output.dir=run --model.width=512 --model.layers=8 --model.heads=8 ";
  for (const char* limit : {"-v 400000", "-d 300000"}) {
    EXPECT_EQ(limited(limit, large), 2) << read("out.txt") << read("err.txt");
    expect_parts(read("err.txt"), {"error: the run needs ", std::string(", and ulimit ").append(limit, 2) + " = ",
                                   " leaves ", "`trireme memory` shows what takes it"});
    EXPECT_FALSE(exists("run"));
    EXPECT_EQ(limited(limit, large + "--dry-run"), 0) << read("err.txt");
    expect_part(read("out.txt"), "NOT RUN HERE");
    EXPECT_EQ(limited(limit, "--output.dir=small --overwrite"), 0) << read("err.txt");
  }
  // Threads have stacks.
  EXPECT_EQ(limited("-v 250000", "--output.dir=run --runtime.threads=4 --parallel.mesh=dp=4"), 2) << read("err.txt");
  expect_part(read("err.txt"), "ulimit -v = ");
}
#endif

// What is left is no model whose loss is anything.
TEST_F(NotFinite, AModelThatHasGoneBadHasNoLoss) {
  EXPECT_EQ(run({"train", "tiny.toml", "--output.dir=run", "--train.warmup=0", "--train.lr=1e30", "--train.clip=0",
                 "--train.schedule=constant"})
                .code,
            1);
  for (const std::vector<std::string>& how : {std::vector<std::string>{}, {"--json"}}) {
    std::vector<std::string> arguments = {"eval", "--from", "run"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Finished f = run(arguments);
    EXPECT_EQ(f.code, 1) << f.out;
    EXPECT_EQ(f.out, "");
    expect_part(f.err, "error: the held-out loss is not finite: the model has gone bad");
  }
}

TEST_F(NotFinite, NamesStepAndTensorAndKeepsTheLastGoodState) {
  expect_explained({"--train.lr=1e30", "--train.clip=0"});
}
TEST_F(NotFinite, WithSeveralMicroBatches) {
  expect_explained({"--train.lr=1e25", "--train.clip=0", "--train.micro_batch=1", "--model.family=llama"});
}
TEST_F(NotFinite, InLowPrecision) { expect_explained({"--train.lr=1e30", "--train.clip=0", "--train.precision=bf16"}); }
// The scale falls to 1 first, one skipped update after the other.
TEST_F(NotFinite, InFp16WhenTheScaleCannotFallAnyFurther) {
  const std::vector<std::string> arguments = {"train",
                                              "tiny.toml",
                                              "--output.dir=run",
                                              "--train.warmup=0",
                                              "--train.lr=1e9",
                                              "--train.clip=0",
                                              "--train.loss_scale=8",
                                              "--train.steps=50",
                                              "--train.precision=fp16"};
  const Finished f = run(arguments);
  EXPECT_EQ(f.code, 1) << f.out << f.err;
  EXPECT_NE(f.err.find("overflow: skipped"), std::string::npos) << f.err;
  const auto lines = metrics("run");
  ASSERT_EQ(lines.size(), 4U);
  const std::vector<double> scales = {8, 8, 4, 2};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["loss_scale"], scales[i]);
    EXPECT_EQ(lines[i]["skipped"], i > 0);
  }
  EXPECT_NE(f.err.find("error: step 5: the loss, with its scale down at 1, is "), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("first tensor to go bad is '"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("saved as step 4"), std::string::npos) << f.err;
}
// Running statistics were written by the bad step's forward pass; they too are as they were.
TEST_F(NotFinite, OfAWorkerOfAServerIsSaidInWords) {
  const Finished f =
      run({"train", "tiny.toml", "--output.dir=run", "--train.warmup=0", "--train.schedule=constant", "--train.lr=1e30",
           "--train.clip=0", "--train.optimizer=sgd", "--parallel.mesh=dp=2", "--parallel.server=ssp:1"});
  EXPECT_EQ(f.code, 1) << f.out << f.err;
  expect_part(f.err, "not a number");
  expect_none(f.err, "nan");
}
// What is in the stages is finished and saved: hours of training are not lost with one batch.
TEST_F(NotFinite, OfAnAsynchronousPipelineIsSavedWhenItIsDrained) {
  for (const char* pipeline : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(pipeline);
    const Finished f =
        run({"train", "tiny.toml", "--output.dir=run", "--overwrite", "--train.schedule=constant",
             "--train.warmup=1000", "--train.steps=1000", "--train.lr=1e4", "--train.clip=0", "--train.optimizer=sgd",
             "--model.tie_embeddings=false", "--train.batch=4", "--train.micro_batch=2", "--parallel.mesh=pp=2",
             std::string("--parallel.pipeline=") + pipeline});
    EXPECT_EQ(f.code, 1) << f.out << f.err;
    const std::size_t at = f.err.rfind("error: step ");
    ASSERT_NE(at, std::string::npos) << f.err;
    const std::int64_t bad = std::stoll(f.err.substr(at + std::string("error: step ").size()));
    ASSERT_GT(bad, 3) << f.err;
    const std::vector<std::string> saved = names_in("run/checkpoints");
    ASSERT_EQ(saved.size(), 1U);
    const std::int64_t step = std::stoll(saved.front().substr(std::string("step-").size()));
    expect_part(f.err, "is saved as step " + std::to_string(step) + " in ");
    EXPECT_GE(step, bad);
    EXPECT_LE(step, bad + 3);
    const auto lines = metrics("run");
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(bad - 1));
    // However often it is resumed and goes bad again, what was saved before stays.
    const Finished bad_again = run({"train", "--resume", "run", "--output.keep=1"});
    EXPECT_EQ(bad_again.code, 1) << bad_again.err;
    EXPECT_EQ(names_in("run/checkpoints").front(), saved.front());
    EXPECT_EQ(names_in("run/checkpoints").size(), 2U);
    std::filesystem::remove_all(folder() / "run/checkpoints" / names_in("run/checkpoints").back());
    expect_part(done({"train", "--resume", "run", "--train.steps=" + std::to_string(step)}).out, "nothing to do");
  }
}
TEST_F(NotFinite, WithRunningStatistics) {
  expect_explained({"--train.lr=1e25", "--train.clip=0", "--model.family=convnet", "--model.layers=2",
                    "--model.width=4", "--model.image=8", "--data.images=synthetic", "--train.optimizer=sgd"});
}

TEST_F(NotFinite, AtTheFirstStep) {
  const Finished f = run({"train", "tiny.toml", "--output.dir=run", "--model.init_std=1e30"});
  EXPECT_EQ(f.code, 1) << f.err;
  EXPECT_NE(f.err.find("error: step 1: "), std::string::npos) << f.err;
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(0)});
}

// A file system of its own, of a given size. Only root may make one.
class FullDisk : public Program {
 protected:
  ~FullDisk() override {
    if (mounted_) umount2((folder() / "disk").c_str(), MNT_DETACH);
  }

  bool mount_disk(const std::string& size) {
    fs::create_directory(folder() / "disk");
    mounted_ = ::mount("none", (folder() / "disk").c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    return mounted_;
  }
  std::uintmax_t free_bytes() const { return fs::space(folder() / "disk").available; }
  // Leaves no more than `left` bytes.
  void fill(std::uintmax_t left) const {
    const std::uintmax_t free = free_bytes();
    ASSERT_GT(free, left);
    write("disk/filler", std::string(free - left, 'x'));
  }

 private:
  bool mounted_ = false;
};

TEST_F(FullDisk, WhileWritingMetrics) {
  if (!mount_disk("1m")) GTEST_SKIP() << "this user may not mount";
  fill(24 * 1024);
  const Finished f = run({"train", "tiny.toml", "--output.dir=disk/run", "--train.steps=100000"});
  EXPECT_EQ(f.code, 1) << f.err;
  EXPECT_NE(f.err.find("error: cannot write disk/run/metrics.jsonl: No space left on device"), std::string::npos)
      << f.err;
  const auto lines = metrics("disk/run");  // checks that each is whole
  EXPECT_GT(lines.size(), 1U);
}

TEST_F(FullDisk, WhileWritingACheckpoint) {
  if (!mount_disk("2m")) GTEST_SKIP() << "this user may not mount";
  done({"train", "tiny.toml", "--output.dir=disk/run", "--train.steps=2", "--train.decay_steps=6"});
  const std::string good = state("disk/run", 2);
  fill(good.size() / 2);
  const Finished f = run({"train", "tiny.toml", "--output.dir=disk/run", "--resume", "--train.decay_steps=6"});
  EXPECT_EQ(f.code, 1) << f.err;
  EXPECT_NE(f.err.find("error: the checkpoint disk/run/checkpoints/" + step_name(6) + " cannot be written"),
            std::string::npos)
      << f.err;
  EXPECT_NE(f.err.find("No space left on device"), std::string::npos) << f.err;
  EXPECT_EQ(names_in("disk/run/checkpoints"), std::vector<std::string>{step_name(2)});
  EXPECT_EQ(state("disk/run", 2), good);
  // With room again, the run goes on as if nothing had been.
  fs::remove(folder() / "disk/filler");
  done({"train", "tiny.toml", "--output.dir=disk/run", "--resume", "--train.decay_steps=6"});
  done({"train", "tiny.toml", "--output.dir=whole"});
  EXPECT_EQ(state("disk/run", 6), state("whole", 6));
}

// A checkpoint that does not fit in the middle of a run costs that checkpoint and nothing else.
TEST_F(FullDisk, WhileTrainingGoesOn) {
  if (!mount_disk("4m")) GTEST_SKIP() << "this user may not mount";
  const std::vector<std::string> endless = {"train",
                                            "tiny.toml",
                                            "--output.dir=disk/run",
                                            "--train.steps=1000000",
                                            "--train.schedule=constant",
                                            "--output.checkpoint_every=20",
                                            "--output.keep=1",
                                            "--output.log_every=1000"};
  const auto log_has = [&](const std::string& text) {
    return exists("disk/run/log.txt") && read("disk/run/log.txt").find(text) != std::string::npos;
  };
  Running running(folder(), endless);
  ASSERT_TRUE(running.wait_until([&] { return log_has("checkpoint of step 20: "); }));
  fill(64 * 1024);
  ASSERT_TRUE(running.wait_until([&] { return log_has("No space left on device"); })) << read("disk/run/log.txt");
  EXPECT_TRUE(log_has("training goes on")) << read("disk/run/log.txt");
  EXPECT_TRUE(log_has("the last good one is of step ")) << read("disk/run/log.txt");
  const std::vector<std::string> kept = names_in("disk/run/checkpoints");
  ASSERT_FALSE(kept.empty());
  fs::remove(folder() / "disk/filler");
  ASSERT_TRUE(running.wait_until([&] {
    const std::vector<std::string> names = names_in("disk/run/checkpoints");
    return !names.empty() && names.front() > kept.front();
  }));
  running.signal(SIGTERM);
  const Finished f = running.wait();
  EXPECT_EQ(f.code, 143) << f.err;
  EXPECT_NE(f.err.find("warning: the checkpoint disk/run/checkpoints/step-"), std::string::npos) << f.err;
  const std::int64_t step = metrics("disk/run").back()["step"];
  done({"train", "tiny.toml", "--output.dir=whole", "--train.steps=" + std::to_string(step),
        "--train.schedule=constant"});
  EXPECT_EQ(state("disk/run", step), state("whole", step));
}

// Older checkpoints make room for the last one: what was trained is worth more than what it was trained from.
TEST_F(FullDisk, OldCheckpointsMakeRoomForTheNewest) {
  if (!mount_disk("4m")) GTEST_SKIP() << "this user may not mount";
  const std::vector<std::string> kept = {"train",
                                         "tiny.toml",
                                         "--output.dir=disk/run",
                                         "--output.keep=3",
                                         "--output.checkpoint_every=1",
                                         "--train.decay_steps=6"};
  std::vector<std::string> some = kept;
  some.emplace_back("--train.steps=3");
  done(some);
  EXPECT_EQ(names_in("disk/run/checkpoints"), (std::vector<std::string>{step_name(1), step_name(2), step_name(3)}));
  fill(state("disk/run", 3).size() / 2);
  std::vector<std::string> all = kept;
  all.insert(all.end(), {"--resume", "--train.steps=6"});
  const Finished f = done(all);
  EXPECT_NE(f.err.find("warning: the disk of disk/run/checkpoints is full: the checkpoint"), std::string::npos)
      << f.err;
  const std::vector<std::string> names = names_in("disk/run/checkpoints");
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), step_name(6));
  fs::remove(folder() / "disk/filler");
  done({"train", "tiny.toml", "--output.dir=whole"});
  EXPECT_EQ(state("disk/run", 6), state("whole", 6));
}

// Nor does it matter on which disk the rest of the run is.
TEST_F(FullDisk, OldCheckpointsBehindALinkMakeRoomToo) {
  if (!mount_disk("4m")) GTEST_SKIP() << "this user may not mount";
  std::vector<std::string> some = {"train",
                                   "tiny.toml",
                                   "--output.dir=run",
                                   "--output.keep=3",
                                   "--output.checkpoint_every=1",
                                   "--train.decay_steps=6"};
  std::vector<std::string> all = some;
  some.emplace_back("--train.steps=3");
  done(some);
  fs::rename(folder() / "run/checkpoints", folder() / "kept");
  fs::copy(folder() / "kept", folder() / "disk/kept", fs::copy_options::recursive);
  fs::create_directory_symlink(folder() / "disk/kept", folder() / "run/checkpoints");
  fill(state("run", 3).size() / 2);
  all.insert(all.end(), {"--resume", "--train.steps=6"});
  const Finished f = done(all);
  expect_part(f.err, "warning: the disk of run/checkpoints is full: the checkpoint");
  EXPECT_EQ(names_in("run/checkpoints").back(), step_name(6));
  fs::remove(folder() / "disk/filler");
  done({"train", "tiny.toml", "--output.dir=whole"});
  EXPECT_EQ(state("run", 6), state("whole", 6));
}

// One that is damaged goes before any that is good, and also where only one of these is left.
TEST_F(FullDisk, DamagedCheckpointsMakeRoomFirst) {
  if (!mount_disk("4m")) GTEST_SKIP() << "this user may not mount";
  const std::vector<std::string> run = {"train",
                                        "tiny.toml",
                                        "--output.dir=disk/run",
                                        "--output.keep=2",
                                        "--output.checkpoint_every=1",
                                        "--train.decay_steps=6"};
  std::vector<std::string> some = run, all = run;
  some.emplace_back("--train.steps=3");
  done(some);
  for (const fs::directory_entry& file : fs::directory_iterator(folder() / "disk/run/checkpoints" / step_name(3)))
    if (file.path().extension() == ".safetensors") {
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(file.file_size()) - 5);
      bytes.put('X');
    }
  fill(state("disk/run", 2).size() / 2);
  all.insert(all.end(), {"--resume", "--train.steps=6", "--output.keep=1"});
  const Finished f = done(all);
  expect_part(f.err, "the checkpoint of step 3 made room");
  EXPECT_EQ(names_in("disk/run/checkpoints").back(), step_name(6));
}

// What was to replace a run did not come: the run stays.
TEST_F(FullDisk, AnImportOrACompressedCopyLeavesTheRunThatItIsToReplace) {
  if (!mount_disk("4m")) GTEST_SKIP() << "this user may not mount";
  done({"train", "tiny.toml", "--output.dir=other", "--model.width=128"});
  done({"train", "tiny.toml", "--output.dir=disk/run"});
  const std::string before = state("disk/run", kSteps);
  fill(64 * 1024);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"import", source_dir() + "/tests/huggingface/gpt2-tied", "disk/run", "--overwrite"},
        std::vector<std::string>{"compress", "other", "--out", "disk/run", "--weights", "int8", "--overwrite"}}) {
    const Finished f = run(command);
    EXPECT_EQ(f.code, 1) << command.front() << f.out << f.err;
    EXPECT_NE(f.err.find("No space left on device"), std::string::npos) << f.err;
    EXPECT_EQ(state("disk/run", kSteps), before) << command.front();
    done({"eval", "--from", "disk/run"});
  }
  fs::remove(folder() / "disk/filler");
  done({"import", source_dir() + "/tests/huggingface/gpt2-tied", "disk/run", "--overwrite"});
  EXPECT_EQ(names_in("disk/run/checkpoints"), (std::vector<std::string>{step_name(0)}));
  EXPECT_FALSE(exists("disk/run/metrics.jsonl"));
  done({"eval", "--from", "disk/run", "--data.text=text.txt"});
}

TEST_F(FullDisk, BeforeAnythingStarts) {
  if (!mount_disk("64k")) GTEST_SKIP() << "this user may not mount";
  fill(0);
  const std::string error = refused({"train", "tiny.toml", "--output.dir=disk/run"});
  EXPECT_NE(error.find("output.dir"), std::string::npos) << error;
  EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
}

// Under `ulimit -f`, which would end the process by a signal without a word.
class FileSizeLimit : public Program {
 protected:
  Finished run_within(rlim_t bytes, const std::vector<std::string>& arguments) const {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit limit = before;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    Running running(folder(), arguments);
    setrlimit(RLIMIT_FSIZE, &before);
    return running.wait();
  }
};

TEST_F(FileSizeLimit, IsReportedAsAFullDisk) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2", "--train.decay_steps=6"});
  const std::string good = state("run", 2);
  const Finished f = run_within(good.size() / 2, {"train", "run", "--resume", "--train.steps=6"});
  EXPECT_EQ(f.code, 1) << f.err;
  EXPECT_NE(f.err.find("error: the checkpoint run/checkpoints/" + step_name(6) + " cannot be written"),
            std::string::npos)
      << f.err;
  EXPECT_NE(f.err.find("File too large"), std::string::npos) << f.err;
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(2)});
  EXPECT_EQ(state("run", 2), good);
}

TEST_F(FileSizeLimit, OfAnOffloadedTensor) {
  const Finished f = run_within(100'000, {"train", "tiny.toml", "--output.dir=run", "--memory.offload=optimizer",
                                          "--model.width=128", "--parallel.mesh=dp=1"});
  EXPECT_GE(f.code, 1) << f.err;
  EXPECT_LE(f.code, 2) << f.err;
  EXPECT_NE(f.err.find("File too large"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace trireme::testing
