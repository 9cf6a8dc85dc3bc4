// Stopping a run from outside.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

// A process that this one has started; 0: none.
int child_of(int pid) {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    int child = 0;
    if (std::ifstream(thread.path() / "children") >> child) return child;
  }
  return 0;
}

// One that has ended and that nobody has asked about does not.
bool runs(int pid) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
  const std::size_t name = text.rfind(')');
  return name != std::string::npos && name + 2 < text.size() && text[name + 2] != 'Z';
}

class Signals : public Program {
 protected:
  static std::vector<std::string> endless(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", "tiny.toml", "--output.dir=run", "--train.steps=1000000",
                                          "--train.schedule=constant"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // Long enough that a second signal arrives before the first is answered.
  static std::vector<std::string> slow_steps() {
    return endless({"--model.width=128", "--model.layers=6", "--train.batch=240", "--model.context=64"});
  }
  bool wait_for_steps(Running& running, std::size_t steps) const {
    return running.wait_until([&] { return lines("run/metrics.jsonl") >= steps; });
  }
  std::int64_t last_step() const { return metrics("run").back().at("step"); }

  // A report comes after five seconds. They pass while the run is stopped, whatever the machine's speed; in between it
  // goes on for longer and longer, so that it gets to what takes long.
  static void expect_shown(Running& running, const std::string& part) {
    constexpr std::chrono::minutes kLongest(1);
    const auto shown = [&] { return running.err().find(part) != std::string::npos; };
    for (std::chrono::milliseconds on(200); on < kLongest && !shown() && !running.ended(); on *= 2) {
      running.signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(5500));
      running.signal(SIGCONT);
      std::this_thread::sleep_for(on);
    }
    EXPECT_TRUE(shown()) << running.out() << running.err();
  }

  void expect_clean_stop(int signal) const {
    Running running(folder(), endless());
    ASSERT_TRUE(wait_for_steps(running, 3));
    running.signal(signal);
    const Finished f = running.wait();
    EXPECT_EQ(f.code, 128 + signal) << f.err;
    EXPECT_NE(f.out.find("train run --resume"), std::string::npos) << f.out;
    expect_saved();
  }

  // The last step that was logged is there as a checkpoint.
  void expect_saved() const {
    const std::int64_t step = last_step();
    EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(step)});
    // The state is that of an undisturbed run of as many steps.
    done({"train", "tiny.toml", "--output.dir=whole", "--train.steps=" + std::to_string(step),
          "--train.schedule=constant"});
    EXPECT_EQ(state("run", step), state("whole", step));
  }
};

TEST_F(Signals, InterruptFinishesTheStepAndSaves) { expect_clean_stop(SIGINT); }
TEST_F(Signals, TerminateFinishesTheStepAndSaves) { expect_clean_stop(SIGTERM); }

TEST_F(Signals, HangUpFinishesTheStepAndSaves) { expect_clean_stop(SIGHUP); }

// Ctrl-Z and fg: ranks that were stopped together have not waited for each other.
TEST_F(Signals, AStoppedRunGoesOnWhereItWasStopped) {
  Running running(folder(), endless({"--parallel.mesh=dp=2", "--parallel.timeout=0.4s", "--runtime.link=1GB/s,20ms"}));
  ASSERT_TRUE(wait_for_steps(running, 2));
  for (int i = 0; i < 3; ++i) {
    running.signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    running.signal(SIGCONT);
    const std::size_t before = lines("run/metrics.jsonl");
    ASSERT_TRUE(wait_for_steps(running, before + 2)) << running.err();
  }
  running.signal(SIGTERM);
  const Finished f = running.wait();
  EXPECT_EQ(f.code, 128 + SIGTERM) << f.err;
}

// The reader of the progress goes away: `trireme train 2>&1 | head`.
TEST_F(Signals, ClosedOutputFinishesTheStepAndSaves) {
  // An evaluation is always shown: the next line that cannot be written comes soon, whatever else the machine does.
  Running running(folder(), endless({"--train.eval_every=2"}), 0, Running::Output::piped);
  ASSERT_TRUE(wait_for_steps(running, 3));
  running.close_reader();
  EXPECT_EQ(running.wait().code, 128 + SIGPIPE);
  expect_saved();
}

// Nothing is lost before the first step, so nobody waits for the plan of a deep model.
TEST_F(Signals, AreObeyedWhileCompiling) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Running running(folder(), endless({"--model.layers=3000"}));
    ASSERT_TRUE(running.wait_until([&] { return !running.out().empty(); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto sent = std::chrono::steady_clock::now();
    running.signal(signal);
    const Finished f = running.wait();
    EXPECT_EQ(f.code, 128 + signal) << f.out << f.err;
    EXPECT_EQ(f.err, "stopped: training had not begun\n");
    EXPECT_EQ(f.out.find("memory  predicted"), std::string::npos) << "the model is too small: it was compiled\n"
                                                                  << f.out;
    EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(2));
    EXPECT_FALSE(exists("run"));
  }
}

// Nothing is printed for seconds meanwhile.
TEST_F(Signals, AClosedOutputIsNoticedWhileCompiling) {
  for (const std::vector<std::string>& command :
       {endless({"--model.layers=3000"}),
        {"memory", "tiny.toml", "--model.layers=3000"},
        {"plan", "tiny.toml", "--cluster=h100", "--ranks=16", "--model.layers=400", "--train.batch=64"}}) {
    Running running(folder(), command, 0, Running::Output::piped);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto closed = std::chrono::steady_clock::now();
    running.close_reader();
    EXPECT_EQ(running.wait().code, 128 + SIGPIPE) << command.front();
    EXPECT_LT(std::chrono::steady_clock::now() - closed, std::chrono::seconds(2)) << command.front();
    EXPECT_FALSE(exists("run"));
  }
}

TEST_F(Signals, LongCompilingIsShown) {
  Running running(folder(), endless({"--model.layers=3000"}));
  expect_shown(running, "compiling · ");
}

// Commands that prepare something stop at once too, and leave nothing half done.
TEST_F(Signals, AreObeyedWhilePlanningAndTokenising) {
  std::string text;
  for (std::int64_t i = 0; i < 4'000'000; ++i) text += "word" + std::to_string(i * 7919 % 100'003) + " ";
  write("long.txt", text);
  const std::string tokenizer = source_dir() + "/tests/tokenizers/llama3.json";
  const std::vector<std::vector<std::string>> commands = {
      endless({"--model.layers=3000", "--dry-run"}),
      endless({"--data.text=long.txt", "--data.tokenizer=" + tokenizer}),
      {"tokenize", "--tokenizer=" + tokenizer, "--out=tokens.bin", "long.txt"},
      {"plan", "tiny.toml", "--cluster=h100", "--ranks=16", "--model.layers=400", "--train.batch=64"},
      {"memory", "tiny.toml", "--model.layers=3000"},
      {"inspect", "program", "tiny.toml", "--model.layers=3000"},
      {"tokenize", "--train=30000", "--out=tokenizer.json", "long.txt"},
  };
  for (const std::vector<std::string>& command : commands) {
    Running running(folder(), command);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto sent = std::chrono::steady_clock::now();
    running.signal(SIGTERM);
    const Finished f = running.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(2)) << command.front();
    EXPECT_EQ(f.code, 128 + SIGTERM) << command.front() << "\n" << f.out << f.err;
  }
  // Nothing was begun: no run, no tokenizer, no tokens, and nothing under another name.
  EXPECT_EQ(names_in("."), (std::vector<std::string>{"long.txt", "text.txt", "tiny.toml"}));
}

// The integer solver has a process of its own, which must not outlive a search that was stopped.
TEST_F(Signals, TheIntegerSolverEndsWithItsSearch) {
  const std::vector<std::string> search = {
      "plan",           "--model.family=resnet",   "--model.layers=50", "--model.width=64",
      "--cluster=h100", "--data.images=synthetic", "--train.batch=256", "--ranks=64"};
  for (const int signal : {SIGTERM, SIGKILL}) {
    Running running(folder(), search);
    int solver = 0;
    ASSERT_TRUE(running.wait_until([&] {
      const int before = solver;
      solver = child_of(running.pid());
      if (solver != 0 && solver == before) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return false;
    }));
    ASSERT_FALSE(running.ended()) << "the problem is too small: nothing was solved for long";
    running.signal(signal);
    running.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_FALSE(runs(solver)) << "after signal " << signal;
  }
}

// One plan takes many seconds to compile: that is shown, and what was found until then is kept, within two seconds.
TEST_F(Signals, AreObeyedWhileAPlanIsCompiled) {
  Running running(folder(), {"plan", "tiny.toml", "--cluster=h100", "--ranks=2", "--model.layers=4000",
                             "--train.batch=8", "--parallel.mesh=dp=2"});
  ASSERT_TRUE(running.wait_until([&] {
    return running.err().find("compiling the winner (best ") != std::string::npos;
  })) << running.err();
  // The same again, whatever the machine's speed: the time passes while it is stopped.
  const std::string shown = running.err();
  running.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(5500));
  running.signal(SIGCONT);
  ASSERT_TRUE(running.wait_until([&] { return running.err() != shown; })) << shown;
  expect_part(running.err().substr(shown.size()), "compiling the winner (best ");
  const auto sent = std::chrono::steady_clock::now();
  running.signal(SIGTERM);
  const Finished f = running.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(2));
  EXPECT_EQ(f.code, 128 + SIGTERM) << f.out << f.err;
  EXPECT_TRUE(f.out.find("this is the best so far") != std::string::npos ||
              f.err.find("stopped: the best plan so far is dp=2") != std::string::npos)
      << f.out << f.err;
}

// A size that fits is kept while a larger one is compiled.
TEST_F(Signals, AreObeyedWhileASizeIsTried) {
  Running running(folder(), {"fit", "tiny.toml", "--cluster=h100", "--ranks=2", "--model.layers=200", "--train.batch=8",
                             "--parallel.mesh=dp=2", "--largest=context"});
  ASSERT_TRUE(running.wait_until([&] { return running.err().find(" fits) ") != std::string::npos; })) << running.err();
  const auto sent = std::chrono::steady_clock::now();
  running.signal(SIGTERM);
  const Finished f = running.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - sent, std::chrono::seconds(2));
  EXPECT_EQ(f.code, 128 + SIGTERM) << f.out << f.err;
  EXPECT_TRUE(f.out.find("largest context") != std::string::npos ||
              f.err.find("stopped: the largest so far is context ") != std::string::npos)
      << f.out << f.err;
}

// What is prepared says how far it is.
TEST_F(Signals, LongPreparationIsShown) {
  std::string text;
  for (std::int64_t i = 0; i < 4'000'000; ++i) text += "word" + std::to_string(i * 7919 % 100'003) + " ";
  write("long.txt", text);
  const std::string tokenizer = source_dir() + "/tests/tokenizers/llama3.json";
  Running reading(folder(), endless({"--data.text=long.txt", "--data.tokenizer=" + tokenizer}));
  expect_shown(reading, "reading data · ");
  Running encoding(folder(), {"tokenize", "--tokenizer=" + tokenizer, "--out=tokens.bin", "long.txt"});
  expect_shown(encoding, "encoding ");
}

TEST_F(Signals, UserSignalSavesAndGoesOn) {
  Running running(folder(), endless());
  ASSERT_TRUE(wait_for_steps(running, 2));
  running.signal(SIGUSR1);
  ASSERT_TRUE(running.wait_until([&] { return !names_in("run/checkpoints").empty(); }));
  const std::size_t then = lines("run/metrics.jsonl");
  ASSERT_TRUE(wait_for_steps(running, then + 3));
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
}

TEST_F(Signals, SecondInterruptQuitsAtOnce) {
  Running running(folder(), slow_steps());
  ASSERT_TRUE(wait_for_steps(running, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  running.signal(SIGINT);
  running.wait_for_delivery();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{});
}

// A scheduler that repeats itself, or a terminal that goes away after Ctrl-C, costs nothing that was trained.
TEST_F(Signals, ASecondRequestDoesNotLoseTheCheckpoint) {
  for (const auto& [first, second] :
       {std::pair{SIGTERM, SIGTERM}, {SIGTERM, SIGHUP}, {SIGHUP, SIGTERM}, {SIGINT, SIGTERM}}) {
    Running running(folder(), slow_steps());
    ASSERT_TRUE(wait_for_steps(running, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    running.signal(first);
    running.wait_for_delivery();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));  // sooner it would be the same request
    running.signal(second);
    const Finished f = running.wait();
    EXPECT_EQ(f.code, 128 + first) << f.err;
    EXPECT_NE(f.err.find("still stopping: the step is finished and a checkpoint written"), std::string::npos) << f.err;
    EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(last_step())});
    std::filesystem::remove_all(folder() / "run");
  }
}

TEST_F(Signals, AThirdRequestQuitsAtOnce) {
  Running running(folder(), slow_steps());
  ASSERT_TRUE(wait_for_steps(running, 1));
  for (int i = 0; i < 3; ++i) {
    running.signal(SIGTERM);
    running.wait_for_delivery();
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
  }
  const Finished f = running.wait();
  EXPECT_EQ(f.code, 143);
  EXPECT_NE(f.err.find("stopped at once: what was trained since the last checkpoint is lost"), std::string::npos)
      << f.err;
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{});
}

// As `timeout` sends them: to the process, then to its group.
TEST_F(Signals, TwiceInAMomentIsOneRequest) {
  Running running(folder(), endless({"--model.width=64", "--train.batch=96"}));
  ASSERT_TRUE(wait_for_steps(running, 1));
  running.signal(SIGTERM);
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(last_step())});
}

TEST_F(Signals, LimitOnTimeSavesAndStops) {
  const Finished f = done(endless({"--train.max_time=300ms"}));
  const std::int64_t step = last_step();
  EXPECT_GT(step, 0);
  EXPECT_LT(step, 1000000);
  EXPECT_EQ(names_in("run/checkpoints"), std::vector<std::string>{step_name(step)});
  EXPECT_NE(f.out.find("stopped at step"), std::string::npos);
}

TEST_F(Signals, StoppedRunGoesOn) {
  Running running(folder(), endless());
  ASSERT_TRUE(wait_for_steps(running, 3));
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
  const std::int64_t step = last_step();
  done({"train", "run", "--resume", "--train.steps=" + std::to_string(step + 2)});
  EXPECT_EQ(last_step(), step + 2);
  EXPECT_EQ(metrics("run").size(), static_cast<std::size_t>(step + 2));
}

}  // namespace
}  // namespace trireme::testing
