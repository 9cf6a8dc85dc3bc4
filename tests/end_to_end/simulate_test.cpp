// `trireme simulate` and `trireme calibrate`, as a person uses them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

class Simulate : public Program {
 protected:
  std::vector<std::string> on(const std::string& cluster, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"simulate", "tiny.toml", "--cluster=" + cluster};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  nlohmann::json json(std::vector<std::string> words) {
    words.emplace_back("--json");
    return nlohmann::json::parse(done(words).out);
  }
};

TEST_F(Simulate, JsonHasTimeByKindAndTheBytesOfTheMemoryPlan) {
  const nlohmann::json one = json(on("h100", {"--parallel.mesh=pp=2", "--train.batch=8", "--train.micro_batch=2"}));
  EXPECT_EQ(one["ranks"], 2);
  EXPECT_TRUE(one["fits"].get<bool>());
  ASSERT_EQ(one["roles"].size(), 2U);
  const double kinds = one["compute_ms"].get<double>() + one["exposed_comm_ms"].get<double>() +
                       one["bubble_ms"].get<double>() + one["waiting_ms"].get<double>();
  EXPECT_NEAR(kinds, one["step_ms"].get<double>(), 1e-6);
  EXPECT_GT(one["bubble_ms"], 0);

  // On a described CPU the bytes are those of `trireme memory`.
  write("cpu.toml",
        "name = \"two\"\ntransport = \"threads\"\n[device]\nname = \"CPU\"\nkind = \"cpu\"\nmemory = \"8GiB\"\n"
        "memory_bandwidth = \"20GB/s\"\nflops = { f32 = 80e9 }\n[node]\ndevices = 4\ncores = 2\n"
        "[inside]\nbandwidth = \"5GB/s\"\nlatency = \"20us\"\n");
  const std::vector<std::string> plan = {"--parallel.mesh=dp=2", "--runtime.threads=1"};
  const nlohmann::json here = json(on("cpu.toml", plan));
  std::vector<std::string> words = {"memory", "tiny.toml", "--brief"};
  words.insert(words.end(), plan.begin(), plan.end());
  EXPECT_EQ(here["roles"][0]["peak_bytes"], json(words)["ranks"][0]["predicted_peak_bytes"]);
}

TEST_F(Simulate, TextComparisonTraceAndCost) {
  const std::string text = done(on("a100", {"--parallel.mesh=dp=2", "--tokens=1B", "--trace=step.json"})).out;
  for (const char* part : {"cluster a100: 2 × A100-80G SXM in 1 node", "step ", "tokens/s", "MFU", "compute ",
                           "exposed communication", "1B tokens in", "$", "F forward"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_GT(nlohmann::json::parse(read("step.json"))["traceEvents"].size(), 10U);
  const std::string both = done(on("a100", {"--compare=parallel.mesh=dp=2 parallel.zero=1"})).out;
  EXPECT_NE(both.find("B takes "), std::string::npos);
  EXPECT_NE(both.find("  tokens/s "), std::string::npos) << both;
  const std::string images = done({"simulate", "mlp", "--cluster=a100", "--compare=parallel.mesh=dp=2"}).out;
  EXPECT_NE(images.find("  images/s "), std::string::npos) << images;
}

// The predicted trace of a step is the real one in other times: on every stream the same instructions in the same
// order.
TEST_F(Simulate, PredictedAndRealTracesAgreeInstructionByInstruction) {
  write("cpu.toml",
        "name = \"two\"\ntransport = \"threads\"\n[device]\nname = \"CPU\"\nkind = \"cpu\"\nmemory = \"8GiB\"\n"
        "memory_bandwidth = \"20GB/s\"\nflops = { f32 = 80e9 }\n[node]\ndevices = 4\ncores = 2\n"
        "[inside]\nbandwidth = \"5GB/s\"\nlatency = \"20us\"\n");
  using Streams = std::map<int, std::vector<std::string>>;
  const auto streams = [&](const std::string& file) {
    std::map<int, std::vector<std::pair<double, std::string>>> timed;
    const nlohmann::json trace = nlohmann::json::parse(read(file));
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "X" && event["pid"] == 0)
        timed[event["tid"]].emplace_back(event["ts"],
                                         event["cat"].get<std::string>() + " " + event["name"].get<std::string>());
    Streams all;
    for (auto& [stream, events] : timed) {
      std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (auto& [ts, name] : events) all[stream].push_back(std::move(name));
    }
    return all;
  };
  for (const std::vector<std::string>& plan : std::vector<std::vector<std::string>>{
           {"--parallel.mesh=dp=2", "--parallel.zero=1"},
           {"--parallel.mesh=pp=2", "--train.batch=8", "--train.micro_batch=2"},
           {"--parallel.mesh=tp=2", "--memory.remat=full", "--train.batch=8", "--train.micro_batch=4"}}) {
    std::vector<std::string> words = {
        "train",           "tiny.toml",          "--output.dir=run", "--runtime.trace=real.json",
        "--train.steps=3", "--runtime.threads=1"};
    words.insert(words.end(), plan.begin(), plan.end());
    std::filesystem::remove_all(folder() / "run");
    done(words);
    std::vector<std::string> more = {"--trace=predicted.json", "--runtime.threads=1"};
    more.insert(more.end(), plan.begin(), plan.end());
    done(on("cpu.toml", more));
    const Streams real = streams("real.json");
    const Streams predicted = streams("predicted.json");
    ASSERT_FALSE(predicted.empty());
    for (const auto& [stream, names] : predicted) {
      ASSERT_TRUE(real.contains(stream)) << plan.front() << " stream " << stream;
      const std::vector<std::string>& all = real.at(stream);
      // Of the steps that were traced, one after the other.
      EXPECT_GE(all.size(), 2 * names.size()) << plan.front();
      const auto at = std::search(all.begin(), all.end(), names.begin(), names.end());
      EXPECT_NE(at, all.end()) << plan.front() << " stream " << stream << ": " << names.size() << " instructions";
    }
  }
}

TEST_F(Simulate, WhatIsWrongIsRefusedWithTheNearest) {
  EXPECT_NE(refused(on("h10")).find("did you mean \"h100\"?"), std::string::npos);
  EXPECT_NE(refused(on("h100", {"--generation=flsh"})).find("did you mean flash?"), std::string::npos);
  EXPECT_NE(refused(on("h100", {"--tokens=many"})).find("--tokens many"), std::string::npos);
  EXPECT_NE(refused({"simulate", "--published=none.csv"}).find("none.csv"), std::string::npos);
  write("short.csv", "name,hardware\nx\n");
  EXPECT_NE(refused({"simulate", "--published=short.csv"}).find("short.csv:2: 1 fields"), std::string::npos);
}

TEST_F(Simulate, PublishedRunsAreInTheUnitOfTheirRow) {
  write(
      "runs.csv",
      "name,family,kv_heads,tied,precision,attention,hardware,gpus,layers,hidden,heads,ffn,vocab,seq,tp,pp,virtual_pp,"
      "dp,cp,micro_batch,global_batch,recompute,seq_parallel,zero/dist_opt,published_metric,value,unit\n"
      "a,gpt,4,yes,fp16,flash,A100-80G/IB,2,2,256,4,1024,512,128,1,1,1,2,1,2,8,none,no,none,iter_time,1,s\n"
      "b,gpt,4,yes,fp16,flash,A100-80G/IB,2,2,256,4,1024,512,128,1,1,1,2,1,2,8,none,no,none,throughput,1,samples/s/"
      "GPU\n"
      "c,\"gpt (x, "
      "y)\",4,yes,fp16,flash,A100-80G/IB,2,2,256,4,1024,512,128,1,1,1,1,2,2,8,none,no,none,iter_time,1,s\n");
  const nlohmann::json rows = json({"simulate", "--published=runs.csv"});
  ASSERT_EQ(rows.size(), 3U);
  const double step = rows[0]["predicted"];
  EXPECT_GT(step, 0);
  EXPECT_NEAR(rows[1]["predicted"].get<double>(), 8 / step / 2, 1e-6 / step);
  EXPECT_NEAR(rows[0]["error"].get<double>(), step - 1, 1e-9);
  EXPECT_NE(rows[2]["refused"].get<std::string>().find("context parallelism"), std::string::npos);
}

// As training does.
TEST_F(Simulate, StagesThatIdleAreAnnounced) {
  const std::vector<std::string> idle = {"simulate",
                                         "tiny.toml",
                                         "--cluster=h100",
                                         "--model.layers=4",
                                         "--parallel.mesh=pp=4",
                                         "--train.batch=4",
                                         "--train.micro_batch=4"};
  expect_part(done(idle).err, "warning: 1 micro-batch for 4 stages leaves most of them idle");
}

}  // namespace
}  // namespace trireme::testing
