// `trireme plan`, `trireme fit` and parallel.plan, as a person uses them.
#include <gtest/gtest.h>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

constexpr const char* kCpu =
    "name = \"two\"\ntransport = \"threads\"\n[device]\nname = \"CPU\"\nkind = \"cpu\"\nmemory = \"8GiB\"\n"
    "memory_bandwidth = \"20GB/s\"\nprice = 1\nflops = { f32 = 80e9 }\n[node]\ndevices = 4\ncores = 2\n"
    "[inside]\nbandwidth = \"5GB/s\"\nlatency = \"20us\"\n";

class PlanCommand : public Program {
 protected:
  nlohmann::json json(std::vector<std::string> words) {
    words.emplace_back("--json");
    return nlohmann::json::parse(done(words).out);
  }
};

TEST_F(PlanCommand, APlanIsAFileThatIsTrainedAndScored) {
  write("cpu.toml", kCpu);
  const nlohmann::json found =
      json({"plan", "tiny.toml", "--cluster=cpu.toml", "--ranks=2", "--finalists=3", "--out=best.toml"});
  EXPECT_EQ(found["ranks"], 2);
  EXPECT_GT(found["candidates"], 5);
  for (const char* key : {"settings", "predicted_step_ms", "peak_bytes", "search_s", "runners_up"})
    EXPECT_TRUE(found.contains(key)) << key;
  ASSERT_GE(found["runners_up"].size(), 1U);
  for (const auto& other : found["runners_up"]) {
    EXPECT_NE(other["plan"], found["plan"]);
    EXPECT_GE(other["predicted_step_ms"], found["predicted_step_ms"]);
  }
  EXPECT_NE(found["launch"].get<std::string>().find("mpirun -n 2 trireme train tiny.toml --plan best.toml"),
            std::string::npos);
  EXPECT_NE(read("best.toml").find("mpirun -n 2"), std::string::npos);
  // The line starts the run that was planned: with what was given of the model.
  const nlohmann::json wider = json({"plan", "tiny.toml", "--cluster=cpu.toml", "--ranks=2", "--finalists=1",
                                     "--model.width=32", "--parallel.zero=0"});
  EXPECT_NE(wider["launch"].get<std::string>().find("train tiny.toml --model.width=32 --plan plan.toml"),
            std::string::npos)
      << wider["launch"];
  // Scored again, it is what the search said, to the byte and to the rounding of the text.
  const nlohmann::json scored = json({"simulate", "tiny.toml", "--cluster=cpu.toml", "--plan=best.toml"});
  const double predicted = found["predicted_step_ms"];
  EXPECT_NEAR(scored["step_ms"].get<double>(), predicted, 1e-6 * predicted);
  std::size_t peak = 0;
  for (const auto& role : scored["roles"]) peak = std::max(peak, role["peak_bytes"].get<std::size_t>());
  EXPECT_EQ(peak, found["peak_bytes"].get<std::size_t>());
  const std::string trained = done({"train", "tiny.toml", "--plan=best.toml", "--train.steps=2"}).out;
  EXPECT_NE(trained.find("run     "), std::string::npos) << trained;
}

// For GPUs too, by a build without kernels for them.
TEST_F(PlanCommand, APlanForGpusIsScoredAsItWasFound) {
  const nlohmann::json found = json({"plan", "tiny.toml", "--cluster=h100", "--ranks=4", "--finalists=3",
                                     "--model.layers=4", "--train.batch=8", "--out=best.toml"});
  const nlohmann::json scored =
      json({"simulate", "tiny.toml", "--cluster=h100", "--model.layers=4", "--train.batch=8", "--plan=best.toml"});
  const double predicted = found["predicted_step_ms"];
  EXPECT_NEAR(scored["step_ms"].get<double>(), predicted, 1e-6 * predicted);
  std::size_t peak = 0;
  for (const auto& role : scored["roles"]) peak = std::max(peak, role["peak_bytes"].get<std::size_t>());
  EXPECT_EQ(peak, found["peak_bytes"].get<std::size_t>());
}

TEST_F(PlanCommand, ExplainsTheBestAndKeepsTheKeysOfTheCommandLine) {
  const std::string text = done({"plan", "tiny.toml", "--cluster=h100", "--ranks=4", "--explain", "--finalists=3",
                                 "--parallel.zero=1", "--parallel.mesh=dp=4"})
                               .out;
  for (const char* part : {"cluster h100: 4 × H100 SXM", "plan    dp=4", "ZeRO-1", "step ", "bound ", "second  ",
                           "limit   ", "more    twice the batch", "one more node"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(PlanCommand, WhatIsImpossibleIsRefusedWithTheNearest) {
  EXPECT_NE(refused({"plan", "tiny.toml", "--cluster=h10"}).find("did you mean \"h100\"?"), std::string::npos);
  // On a busy machine the search has shown its progress before.
  const Finished small = run({"plan", "tiny.toml", "--cluster=h100", "--memory.limit=64KiB"});
  EXPECT_EQ(small.code, 2);
  EXPECT_NE(small.err.find("error: no plan fits 64.0 KiB a rank"), std::string::npos) << small.err;
  EXPECT_NE(small.err.find("the nearest is"), std::string::npos) << small.err;
  write("cpu.toml", kCpu);
  done({"plan", "tiny.toml", "--cluster=cpu.toml", "--ranks=2", "--finalists=1", "--out=best.toml"});
  EXPECT_NE(refused({"simulate", "tiny.toml", "--cluster=cpu.toml", "--plan=best.toml", "--model.layers=3"})
                .find("was made for another model"),
            std::string::npos);
  write("bad.toml", "name = \"bad\"\n[device]\nname = \"x\"\nmemory = \"-1GB\"\n");
  EXPECT_NE(refused({"plan", "tiny.toml", "--cluster=bad.toml"}).find("bad.toml"), std::string::npos);
}

TEST_F(PlanCommand, FitFindsTheLargestThatFitsAndNoLarger) {
  const std::vector<std::string> words = {"fit",       "tiny.toml",         "--cluster=h100",
                                          "--ranks=1", "--largest=context", "--memory.limit=64MiB"};
  const nlohmann::json found = json(words);
  EXPECT_LE(found["peak_bytes"].get<double>(), 64.0 * 1024 * 1024);
  EXPECT_GT(found["peak_bytes"].get<double>(), 0.5 * 64 * 1024 * 1024);
  EXPECT_NE(found["next"].get<std::string>().find("no plan fits"), std::string::npos);
  EXPECT_NE(refused({"fit", "tiny.toml", "--cluster=h100", "--tokens=1B"}).find("go together"), std::string::npos);
  const nlohmann::json offers = json({"fit", "tiny.toml", "--tokens=1M", "--within=30d", "--clusters=a100,h100"});
  ASSERT_EQ(offers.size(), 2U);
  EXPECT_LE(offers[0]["cost"].get<double>(), offers[1]["cost"].get<double>());
}

TEST_F(PlanCommand, AutoPlansWithTheCalibrationBeforeTraining) {
  std::filesystem::create_directories(folder() / "cache/trireme");
  write("cache/trireme/cluster.toml", kCpu);
  setenv("XDG_CACHE_HOME", (folder() / "cache").c_str(), 1);
  const std::string text = done({"train", "tiny.toml", "--parallel.plan=auto", "--train.steps=2"}).out;
  // A dry run reports what does not fit, and refuses nothing for it.
  const std::vector<std::string> small = {"train", "tiny.toml", "--parallel.plan=auto", "--parallel.mesh=dp=2",
                                          "--memory.limit=1KiB"};
  std::vector<std::string> dry = small;
  dry.emplace_back("--dry-run");
  const Finished reported = run(dry);
  const Finished refused = run(small);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_NE(refused.err.find("no plan fits"), std::string::npos) << refused.err;
  EXPECT_EQ(reported.code, 0) << reported.err;
  EXPECT_NE(reported.err.find("no plan fits"), std::string::npos) << reported.err;
  EXPECT_NE(reported.err.find("the nearest is "), std::string::npos) << reported.err;
  EXPECT_NE(text.find("planned "), std::string::npos) << text;
  EXPECT_NE(text.find("run     "), std::string::npos) << text;
}

// A machine that was never calibrated is measured first, and that is kept for the next time.
TEST_F(PlanCommand, AutoMeasuresAMachineThatIsNotKnown) {
  setenv("XDG_CACHE_HOME", (folder() / "cache").c_str(), 1);
  const Finished first = run({"train", "tiny.toml", "--parallel.plan=auto", "--train.steps=2"});
  const Finished again = run({"train", "tiny.toml", "--parallel.plan=auto", "--train.steps=2"});
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("this machine was measured quickly and is kept in"), std::string::npos) << first.err;
  EXPECT_NE(first.out.find("planned "), std::string::npos) << first.out;
  EXPECT_TRUE(std::filesystem::exists(folder() / "cache/trireme/cluster.toml"));
  EXPECT_EQ(again.err.find("measured quickly"), std::string::npos) << again.err;
  EXPECT_NE(again.out.find("planned "), std::string::npos) << again.out;
}

// What was kept of measured plans is read again, and what was not is refused by name.
TEST_F(PlanCommand, PlansThatWereMeasuredAreSimulatedAgain) {
  EXPECT_NE(refused({"bench", "plans", "--from=nowhere"}).find("--keep nowhere` makes it"), std::string::npos);
  EXPECT_NE(refused({"bench", "plans", "--from=a", "--keep=b"}).find("give one"), std::string::npos);
  write("other/measured.json", "[{\"plan\": \"another\", \"measured\": 1}]");
  EXPECT_NE(refused({"bench", "plans", "--plans=1", "--from=other"}).find("give --seed and --plans as then"),
            std::string::npos);
  if (std::getenv("TRIREME_WHOLE") == nullptr) return;  // it measures this machine
  const nlohmann::json once = json({"bench", "plans", "--plans=2", "--steps=1", "--keep=kept"});
  for (const char* file : {"cluster.toml", "measured.json", "plan00.0.json", "plan01.simulated.json"})
    EXPECT_TRUE(std::filesystem::exists(folder() / "kept" / file)) << file;
  const nlohmann::json again = json({"bench", "plans", "--plans=2", "--from=kept"});
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again["plans"][i]["plan"], once["plans"][i]["plan"]);
    EXPECT_DOUBLE_EQ(again["plans"][i]["measured_ms"].get<double>(), once["plans"][i]["measured_ms"].get<double>());
    EXPECT_NEAR(again["plans"][i]["predicted_ms"].get<double>() / once["plans"][i]["predicted_ms"].get<double>(), 1,
                1e-6);
  }
}

}  // namespace
}  // namespace trireme::testing
