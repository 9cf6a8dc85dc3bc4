// What a run is worth after it was killed, and after its files were damaged.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "end_to_end/program.h"
#include "trireme/core/aside.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Crash : public Program {
 protected:
  // Dropout and micro-batches: random numbers and sums must come out the same as well.
  static std::vector<std::string> arguments(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train",
                                    "tiny.toml",
                                    "--output.dir=" + run,
                                    "--train.schedule=constant",
                                    "--model.dropout=0.1",
                                    "--train.micro_batch=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  bool unfinished() const {
    for (const std::string& name : names_in("run/checkpoints"))
      if (name.ends_with(".partial")) return true;
    return false;
  }
  std::int64_t newest() const {
    std::int64_t step = 0;
    for (const std::string& name : names_in("run/checkpoints"))
      if (!name.ends_with(".partial")) step = std::max<std::int64_t>(step, std::stoll(name.substr(5)));
    return step;
  }
  // The last step of a log that may be being written.
  std::int64_t last_whole(const std::string& run) const {
    return static_cast<std::int64_t>(lines(run + "/metrics.jsonl"));
  }
  // What is in "run" is what is in "whole", which nobody disturbed: every tensor, and what was logged of each step.
  void expect_same_run(std::int64_t end) const {
    EXPECT_TRUE(state("run", end) == state("whole", end)) << "after step " << end;
    const auto a = metrics("run");
    const auto b = metrics("whole");
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      for (const char* key : {"step", "loss", "grad_norm"}) ASSERT_EQ(a[i][key], b[i][key]) << key << " of line " << i;
  }
  void flip(const std::string& file, std::size_t at) const {
    std::string bytes = read(file);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 0x10);
    write(file, bytes);
  }
};

TEST_F(Crash, KilledAgainAndAgainARunEndsAsTheUndisturbedOne) {
  const char* asked = std::getenv("TRIREME_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 5;
  const auto begin = std::chrono::steady_clock::now();
  done(arguments("short", {"--output.checkpoint_every=1"}));
  const auto life = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::mt19937 random(1);
  int while_writing = 0;
  int before_the_first_step = 0;
  for (int k = 0; k < kills; ++k) {
    const std::int64_t before = newest();
    Running running(folder(), arguments("run", {"--resume", "--train.steps=1000000", "--output.checkpoint_every=1"}));
    // From before the program has read its configuration to several checkpoints later.
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, 2 * life.count())(random)));
    running.signal(SIGKILL);
    const Finished f = running.wait();
    ASSERT_EQ(f.code, 128 + SIGKILL) << f.out << f.err;
    // No checkpoint was ever found damaged, and each restart took the newest.
    EXPECT_EQ(f.err.find("skipping"), std::string::npos) << f.err;
    if (const std::size_t at = f.err.find("resuming run at step "); at != std::string::npos) {
      EXPECT_EQ(std::stoll(f.err.substr(at + std::string("resuming run at step ").size())), before);
    }
    while_writing += unfinished() ? 1 : 0;
    before_the_first_step += newest() == before ? 1 : 0;
  }
  // Of random moments few are those of a write: then one is waited for.
  for (int k = 0; k < 50 && while_writing == 0; ++k) {
    Running running(folder(), arguments("run", {"--resume", "--train.steps=1000000", "--output.checkpoint_every=1"}));
    ASSERT_TRUE(running.wait_until([&] { return unfinished(); }));
    running.signal(SIGKILL);
    ASSERT_EQ(running.wait().code, 128 + SIGKILL);
    while_writing += unfinished() ? 1 : 0;
  }
  EXPECT_GT(while_writing, 0) << "no kill hit a write: nothing was shown";
  const std::string steps = "--train.steps=" + std::to_string(newest() + 3);
  const Finished last = done(arguments("run", {"--resume", steps}));
  EXPECT_NE(last.err.find("resuming run at step"), std::string::npos) << last.err;
  EXPECT_FALSE(unfinished());
  done(arguments("whole", {steps, "--output.checkpoint_every=0"}));
  const std::int64_t end = newest();
  expect_same_run(end);
  std::printf("%d kills over %lld steps: %d while a checkpoint was being written, %d before the first new one\n", kills,
              static_cast<long long>(end), while_writing, before_the_first_step);
}

// Whatever stops a run, and whenever, what is there afterwards goes on to the undisturbed run's end. A signal that can
// be answered costs no step that was logged: it finds the run preparing, and nothing changes, or it gets a checkpoint.
//
//   TRIREME_KILLS=200       as many stops
//   TRIREME_KILLS_FROM=100  … after the first hundred, so that a long run can be cut in parts
TEST_F(Crash, StoppedByAnySignalARunEndsAsTheUndisturbedOne) {
  const auto asked = [](const char* variable, int otherwise) {
    const char* value = std::getenv(variable);
    return value != nullptr ? std::atoi(value) : otherwise;
  };
  const int stops = asked("TRIREME_KILLS", 8);
  const int from = asked("TRIREME_KILLS_FROM", 0);
  const auto begin = std::chrono::steady_clock::now();
  done(arguments("short", {"--output.checkpoint_every=3"}));
  const auto life = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  constexpr std::array<int, 4> kSignals = {SIGKILL, SIGTERM, SIGHUP, SIGPIPE};
  const auto log = [&] { return exists("run/metrics.jsonl") ? read("run/metrics.jsonl") : std::string(); };
  const auto last_logged = [&]() -> std::int64_t {
    const std::string text = log();
    if (text.empty()) return 0;
    const std::size_t line = text.rfind('\n', text.size() - 2);
    return nlohmann::json::parse(text.substr(line == std::string::npos ? 0 : line + 1))["step"];
  };
  int killed = 0;
  int preparing = 0;  // nothing was trained, and nothing has changed
  int answered = 0;   // with a checkpoint of the last step that was logged
  const auto stop = [&](int signal, const std::function<void(Running&)>& wait) {
    const std::int64_t before = newest();
    const std::string logged = log();
    Running running(folder(), arguments("run", {"--resume", "--train.steps=1000000", "--output.checkpoint_every=3"}), 0,
                    Running::Output::piped);
    wait(running);
    if (signal == SIGPIPE) running.close_reader();
    running.signal(signal);
    ASSERT_EQ(running.wait().code, 128 + signal);
    ASSERT_GE(newest(), before);
    if (signal == SIGKILL) {
      ++killed;
    } else if (newest() > before) {
      ++answered;
      ASSERT_EQ(last_logged(), newest());
      EXPECT_FALSE(unfinished());
    } else {
      ++preparing;
      // A kill before may have left steps in the log that are done again.
      ASSERT_TRUE(log() == logged || last_logged() == newest()) << "steps were logged and lost";
    }
  };
  for (int k = from; k < from + stops; ++k) {
    const int signal = kSignals[static_cast<std::size_t>(k) % kSignals.size()];
    std::mt19937 random(static_cast<std::uint32_t>(k));
    const auto moment =
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, 3 * life.count())(random));
    // Half of the moments count from the start, half from a step of this run: those hit steps on any machine.
    const bool in_steps = k / 4 % 2 == 1;
    const auto wanted = std::max(newest(), last_whole("run")) + 1;
    SCOPED_TRACE(fmt::format("stop {}, by signal {} {} µs after {}", k, signal, moment.count(),
                             in_steps ? "a step" : "the start"));
    stop(signal, [&](Running& running) {
      if (in_steps) running.wait_until([&] { return last_whole("run") >= wanted; });
      std::this_thread::sleep_for(moment);
    });
    if (HasFatalFailure()) return;
  }
  ASSERT_EQ(killed + preparing + answered, stops);
  std::printf("%d stops: %d kills, %d signals while preparing, %d answered with a checkpoint\n", stops, killed,
              preparing, answered);
  // Of many random moments some are those of preparation. Of few none may be: then each is waited for, by each signal
  // that can be answered.
  if (stops >= 40) {
    EXPECT_GE(2 * answered, stops - killed) << "few signals hit a step";
    EXPECT_GT(preparing, 0) << "no signal hit the preparation";
  }
  for (const int signal : {SIGTERM, SIGHUP, SIGPIPE}) {
    SCOPED_TRACE(fmt::format("signal {} between steps", signal));
    const int before = answered;
    const auto wanted = std::max(newest(), last_whole("run")) + 2;  // a kill may have left some in the log
    stop(signal, [&](Running& running) { running.wait_until([&] { return last_whole("run") >= wanted; }); });
    if (HasFatalFailure()) return;
    EXPECT_EQ(answered, before + 1);
  }
  for (const int signal : {SIGTERM, SIGHUP, SIGPIPE}) {
    SCOPED_TRACE(fmt::format("signal {} while preparing", signal));
    const int before = preparing;
    stop(signal, [&](Running&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    if (HasFatalFailure()) return;
    EXPECT_EQ(preparing, before + 1);
  }
  const std::string steps = "--train.steps=" + std::to_string(newest() + 3);
  done(arguments("run", {"--resume", steps}));
  done(arguments("whole", {steps, "--output.checkpoint_every=0"}));
  expect_same_run(newest());
}

TEST_F(Crash, LeftoversOfAKilledRunAreRemoved) {
  done(arguments("run", {}));
  fs::create_directories(folder() / "run/checkpoints/step-00000099.partial");
  write("run/checkpoints/step-00000099.partial/state.safetensors", "half");
  const std::string left = aside_name("metrics.jsonl", "part", 0);
  constexpr int kNobody = (1 << 30) - 1;  // beyond any process's number
  const std::string own = fmt::format("-{}-", ::getpid());
  const std::string half =
      "run/" + std::string(left).replace(left.rfind(own), own.size(), fmt::format("-{}-", kNobody));
  write(half, "half");
  write("run/dataset.tar.part-1", "kept");
  done(arguments("run", {"--resume", "--train.steps=8"}));
  EXPECT_FALSE(unfinished());
  EXPECT_FALSE(exists(half));
  EXPECT_TRUE(exists("run/dataset.tar.part-1"));
}

TEST_F(Crash, DamageIsNamedAndTheCheckpointBeforeIsTaken) {
  done(arguments("run", {"--output.checkpoint_every=2", "--output.keep=3"}));
  const std::string end = state("run", 6);
  const std::string six = "run/checkpoints/" + step_name(6);
  const std::string four = "run/checkpoints/" + step_name(4);
  flip(six + "/state.safetensors", end.size() - 1);
  flip(four + "/manifest.json", 100);
  const Finished f = done(arguments("run", {"--resume", "--output.checkpoint_every=2", "--output.keep=2"}));
  EXPECT_NE(f.err.find("warning: skipping " + six + ": " + six + "/state.safetensors: tensor \""), std::string::npos)
      << f.err;
  EXPECT_NE(f.err.find("warning: skipping " + four + ": " + four + "/manifest.json: its checksum does not match"),
            std::string::npos)
      << f.err;
  EXPECT_NE(f.err.find("resuming run at step 2"), std::string::npos) << f.err;
  // Both were made again.
  EXPECT_EQ(state("run", 6), end);
  EXPECT_EQ(names_in("run/checkpoints"), (std::vector<std::string>{step_name(4), step_name(6)}));
}

TEST_F(Crash, DamagedCheckpointsDoNotCountAsKept) {
  done(arguments("run", {"--output.checkpoint_every=2", "--train.steps=4"}));
  flip("run/checkpoints/" + step_name(4) + "/state.safetensors", 3);
  // Step 4 is not written again, so the folder of that step stays damaged.
  done(arguments("run", {"--resume", "--output.checkpoint_every=5", "--train.steps=5"}));
  EXPECT_EQ(names_in("run/checkpoints"), (std::vector<std::string>{step_name(2), step_name(5)}));
}

TEST_F(Crash, ADamagedCheckpointIsRefusedWhenAskedForByStep) {
  done(arguments("run", {}));
  flip("run/checkpoints/" + step_name(6) + "/state.safetensors", 20);
  const std::string error = refused({"generate", "--from", "run", "--step", "6", "--prompt", "oar"});
  EXPECT_NE(error.find("state.safetensors: the checksum of its header does not match"), std::string::npos) << error;
}

// Also where the byte is in what is not read: of the optimizer's moments only training needs any.
TEST_F(Crash, DamageOfTheOptimizerIsRefusedByStepToo) {
  done(arguments("run", {}));
  const std::string six = "run/checkpoints/" + step_name(6) + "/state.safetensors";
  const std::string bytes = read(six);
  const auto header = nlohmann::json::parse(
      bytes.substr(8, *reinterpret_cast<const std::uint64_t*>(bytes.data())));  // NOLINT: little-endian, as written
  std::size_t at = 0;
  for (const auto& [name, tensor] : header.items())
    if (name.ends_with("/m"))
      at = 8 + *reinterpret_cast<const std::uint64_t*>(bytes.data()) + tensor["data_offsets"][0].get<std::size_t>();
  ASSERT_GT(at, 0U);
  flip(six, at);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"generate", "--from=run", "--step=6", "--prompt=oar"},
        {"eval", "--from=run", "--step=6"},
        {"export", "run", "out", "--step=6"}})
    EXPECT_NE(refused(words).find("/m\""), std::string::npos) << words.front();
}

TEST_F(Crash, CheckpointsOfAnotherFormatAreDistinguished) {
  done(arguments("run", {}));
  write("run/checkpoints/" + step_name(6) + "/manifest.json", R"({"format": 1, "step": 6, "tensors": {}})");
  const std::string error = refused(arguments("run", {"--resume"}));
  EXPECT_NE(error.find("has format 1; this version reads formats 2 to 4"), std::string::npos) << error;
}

TEST_F(Crash, TwoProcessesDoNotShareARun) {
  Running running(folder(), arguments("run", {"--train.steps=1000000"}));
  ASSERT_TRUE(running.wait_until([&] { return lines("run/metrics.jsonl") >= 1; }));
  for (const char* mode : {"--resume", "--overwrite"}) {
    const std::string error = refused(arguments("run", {mode}));
    EXPECT_NE(error.find("another process is training there"), std::string::npos) << error;
  }
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_EQ(metrics("run").back()["step"], newest());
}

// However little room a checkpoint has on its way to the disk, it holds the state of its own step.
TEST_F(Crash, StagingChangesNothing) {
  const auto train = [&](const std::string& run, const std::string& key) {
    done(arguments(run, {key, "--model.width=64", "--output.checkpoint_every=1", "--output.keep=9"}));
  };
  train("auto", "--output.staging=auto");
  train("little", "--output.staging=4KiB");
  for (std::int64_t step = 1; step <= kSteps; ++step) EXPECT_EQ(state("auto", step), state("little", step)) << step;
  done(arguments("alone", {"--model.width=64", "--train.steps=3"}));
  EXPECT_EQ(state("auto", 3), state("alone", 3));
}

TEST_F(Crash, StagingIsInThePlanAndGivesWayToTheLimit) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"memory", "tiny.toml", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return nlohmann::json::parse(done(all).out)["ranks"][0];
  };
  const nlohmann::json whole = plan({});
  const nlohmann::json little = plan({"--output.staging=4KiB"});
  const auto peak = [](const nlohmann::json& rank) { return rank["predicted_peak_bytes"].get<std::int64_t>(); };
  const auto staging = [](const nlohmann::json& rank) { return rank["staging"].get<std::int64_t>(); };
  EXPECT_EQ(peak(whole) - peak(little), staging(whole) - staging(little));
  const std::int64_t limit = (peak(whole) + peak(little)) / 2;
  const nlohmann::json limited = plan({"--memory.limit=" + std::to_string(limit)});
  EXPECT_LE(peak(limited), limit);
  EXPECT_GT(staging(limited), staging(little));
  const std::string error = refused({"train", "tiny.toml", "--memory.limit=" + std::to_string(peak(little) - 1)});
  EXPECT_NE(error.find("memory.limit"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing
