// `trireme simulate` and `trireme calibrate`, as a person uses them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

constexpr const char* kCpu =
    "name = \"two\"\ntransport = \"threads\"\n[device]\nname = \"CPU\"\nkind = \"cpu\"\nmemory = \"8GiB\"\n"
    "memory_bandwidth = \"20GB/s\"\nflops = { f32 = 80e9 }\n[node]\ndevices = 4\ncores = 2\n"
    "[inside]\nbandwidth = \"5GB/s\"\nlatency = \"20us\"\n";

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
  write("cpu.toml", kCpu);
  const std::vector<std::string> plan = {"--parallel.mesh=dp=2", "--runtime.threads=1"};
  const nlohmann::json here = json(on("cpu.toml", plan));
  std::vector<std::string> words = {"memory", "tiny.toml", "--brief"};
  words.insert(words.end(), plan.begin(), plan.end());
  EXPECT_EQ(here["roles"][0]["peak_bytes"], json(words)["ranks"][0]["predicted_peak_bytes"]);
}

// What a model needs is the same however often it is computed: in a simulated step, and in the metrics of a run.
TEST_F(Simulate, MfuCountsNothingThatIsRecomputedAsARunDoes) {
  write("cpu.toml", kCpu);
  struct Counts {
    double simulated = 0, all = 0, model = 0;
  };
  const auto counts = [&](const std::string& remat) {
    const std::vector<std::string> keys = {"--model.layers=4", "--model.width=128", "--memory.remat=" + remat};
    const nlohmann::json s = json(on("cpu.toml", keys));
    constexpr double kPeak = 2 * 80e9;  // of one rank that has both cores
    std::vector<std::string> words = {"train", "tiny.toml", "--output.dir=" + remat};
    words.insert(words.end(), keys.begin(), keys.end());
    done(words);
    const nlohmann::json plan = nlohmann::json::parse(read(remat + "/run.json"))["plan"];
    const Counts c{s["mfu"].get<double>() * s["step_ms"].get<double>() * 1e-3 * kPeak, plan["flops_per_step"],
                   plan["model_flops_per_step"]};
    const auto speed = [&](const nlohmann::json& line) { return c.model / line["step_ms"].get<double>() / 1e6; };
    const std::string log = read(remat + "/log.txt");
    const auto said = [&](const std::string& before) {
      return std::stod(log.substr(log.find(before) + before.size()));
    };
    const std::vector<nlohmann::json> lines = metrics(remat);
    // On a busy machine a step may outrun the large product: then it is the measure, and its speed is in the log.
    const std::string outran = "mfu: step ";
    if (log.find(outran) != std::string::npos) {
      const auto step = static_cast<std::size_t>(said(outran));
      EXPECT_NEAR(said(fmt::format("{}{} ran at ", outran, step)), speed(lines[step - 1]), 0.1) << log;
    } else {
      for (const nlohmann::json& line : lines)
        EXPECT_NEAR(line["mfu"].get<double>(), speed(line) / said("a large product runs at "), 2e-4) << line;
    }
    return c;
  };
  const Counts none = counts("none"), full = counts("full");
  EXPECT_EQ(none.all, none.model);
  EXPECT_NEAR(none.simulated, none.model, 1e-6 * none.model);
  EXPECT_NEAR(full.simulated, full.model, 1e-6 * full.model);
  EXPECT_GT(full.all, 1.15 * none.all);
  EXPECT_NEAR(full.model, none.model, 0.02 * none.model);  // but for what is fused in one of them
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

// What is recomputed is no work of the model.
TEST_F(Simulate, MfuCountsWhatTheModelNeeds) {
  const std::vector<std::string> large = {"--model.width=256", "--model.layers=4", "--train.batch=8"};
  const auto with = [&](const std::string& remat) {
    std::vector<std::string> words = large;
    words.push_back("--memory.remat=" + remat);
    return json(on("h100", words));
  };
  const nlohmann::json plain = with("none"), full = with("full");
  EXPECT_EQ(plain["mfu"], plain["hfu"]);
  EXPECT_LT(full["tokens_per_s"], 0.95 * plain["tokens_per_s"].get<double>());
  const double slower = full["tokens_per_s"].get<double>() / plain["tokens_per_s"].get<double>();
  // But for what is fused in one of them.
  EXPECT_NEAR(full["mfu"].get<double>() / plain["mfu"].get<double>(), slower, 0.02 * slower);
  EXPECT_GT(full["hfu"], 1.1 * full["mfu"].get<double>());
}

// The ranks of a CPU's node share its memory, for simulate as for plan.
TEST_F(Simulate, RanksOfACpuFitWhereTheirSumDoes) {
  write("cpu.toml", kCpu);
  const auto on_two = [&] { return json(on("cpu.toml", {"--parallel.mesh=dp=2", "--runtime.threads=1"})); };
  const std::uint64_t peak = on_two()["roles"][0]["peak_bytes"];
  const auto with = [&](std::uint64_t memory) {
    std::string text = kCpu;
    text.replace(text.find("8GiB"), 4, std::to_string(memory) + "B");
    write("cpu.toml", text);
  };
  with(2 * peak - 2);
  EXPECT_FALSE(on_two()["fits"].get<bool>());
  with(2 * peak);
  EXPECT_TRUE(on_two()["fits"].get<bool>());
}

// Ranks of a node have its link to the others in turn or together, as they come.
TEST_F(Simulate, ALinkBetweenNodesIsSharedByThoseThatUseItAtOnce) {
  const auto step = [&](int sharing, const std::string& mesh) {
    std::string text = kCpu;
    text.replace(text.find("threads"), 7, "nccl");
    text.replace(text.find("\"cpu\""), 5, "\"gpu\"");
    text.replace(text.find("devices = 4"), 11, "devices = 2");
    text += "[network]\nbandwidth = \"10MB/s\"\nsharing = " + std::to_string(sharing) + "\n";
    write("nodes.toml", text);
    return json(on("nodes.toml", {"--parallel.mesh=" + mesh, "--model.layers=4", "--train.batch=8",
                                  "--train.micro_batch=2"}))["step_ms"]
        .get<double>();
  };
  // Of a node one rank sends, and one receives; the norm of all gradients is of few bytes.
  EXPECT_NEAR(step(2, "pp=4") / step(1, "pp=4"), 1, 1e-3);
  EXPECT_GT(step(2, "pp=2,dp=2"), 1.2 * step(1, "pp=2,dp=2"));
  EXPECT_GT(step(2, "dp=2,tp=2"), 1.2 * step(1, "dp=2,tp=2"));
}

// Each side is what it says: settings, a plan or a configuration.
TEST_F(Simulate, ComparesPlansConfigurationsAndSettings) {
  write("cpu.toml", kCpu);
  const auto planned = [&](const std::string& file, const std::string& mesh) {
    done({"plan", "tiny.toml", "--cluster=cpu.toml", "--ranks=2", "--finalists=1", "--out=" + file,
          "--parallel.mesh=" + mesh});
  };
  planned("data.toml", "dp=2");
  planned("tensor.toml", "tp=2");
  const auto meshes = [&](const std::vector<std::string>& more) {
    const nlohmann::json both = json(on("cpu.toml", more));
    EXPECT_EQ(both.size(), 2U);
    return both[0]["mesh"].get<std::string>() + " " + both[1]["mesh"].get<std::string>();
  };
  EXPECT_EQ(meshes({"--plan=data.toml", "--compare=tensor.toml"}), "dp=2 tp=2");
  EXPECT_EQ(meshes({"--parallel.mesh=pp=2", "--train.batch=8", "--compare=tensor.toml"}), "pp=2 tp=2");
  // Another configuration is not under this one's plan.
  write("other.toml", read("tiny.toml") + "[parallel]\nmesh = \"dp=2\"\n");
  EXPECT_EQ(meshes({"--plan=tensor.toml", "--compare=other.toml"}), "tp=2 dp=2");
  // Settings are over both, and what a plan fixes cannot be set otherwise.
  const nlohmann::json more = json(on("cpu.toml", {"--plan=tensor.toml", "--compare=train.steps=12345"}));
  EXPECT_EQ(more[1]["mesh"], "tp=2");
  EXPECT_EQ(more[1]["step_ms"], more[0]["step_ms"]);
  EXPECT_GT(more[1]["tokens"], more[0]["tokens"]);
  EXPECT_NE(refused(on("cpu.toml", {"--plan=tensor.toml", "--compare=parallel.zero=1"})).find("contradicts the plan"),
            std::string::npos);
  const std::string text = done(on("cpu.toml", {"--plan=data.toml", "--compare=tensor.toml"})).out;
  expect_parts(text, {"A  tiny.toml --plan data.toml  dp=2", "B  tiny.toml --plan tensor.toml  tp=2"});
}

// The predicted trace of a step is the real one in other times: on every stream the same instructions in the same
// order.
TEST_F(Simulate, PredictedAndRealTracesAgreeInstructionByInstruction) {
  write("cpu.toml", kCpu);
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

constexpr const char* kColumns =
    "name,family,kv_heads,tied,precision,attention,hardware,gpus,layers,hidden,heads,ffn,vocab,seq,tp,pp,virtual_pp,"
    "dp,cp,micro_batch,global_batch,recompute,seq_parallel,zero/dist_opt,published_metric,value,unit\n";

// Cells that say something else than what would be simulated.
TEST_F(Simulate, PublishedCellsAreReadAsWhatTheySayOrRefused) {
  const std::map<std::string, std::string> right = {{"name", "a"},
                                                    {"family", "gpt"},
                                                    {"kv_heads", "4"},
                                                    {"tied", "yes"},
                                                    {"precision", "fp16"},
                                                    {"attention", "flash"},
                                                    {"gpus", "2"},
                                                    {"hardware", "A100-80G/IB"},
                                                    {"layers", "2"},
                                                    {"hidden", "256"},
                                                    {"heads", "4"},
                                                    {"ffn", "1024"},
                                                    {"vocab", "512"},
                                                    {"seq", "128"},
                                                    {"tp", "1"},
                                                    {"pp", "1"},
                                                    {"virtual_pp", "1"},
                                                    {"dp", "2"},
                                                    {"cp", "1"},
                                                    {"micro_batch", "2"},
                                                    {"global_batch", "8"},
                                                    {"recompute", "none"},
                                                    {"value", "1"},
                                                    {"seq_parallel", "no"},
                                                    {"unit", "s"},
                                                    {"zero/dist_opt", "1"},
                                                    {"published_metric", "iter_time"}};
  const auto written = [&](const std::string& column, const std::string& cell) {
    std::map<std::string, std::string> cells = right;
    cells.at(column) = cell;
    std::string row;
    std::istringstream columns(kColumns);
    for (std::string name; std::getline(columns, name, ',');)
      row += (row.empty() ? "" : ",") + cells.at(name.substr(0, name.find('\n')));
    write("one.csv", kColumns + row + "\n");
  };
  const auto why = [&](const std::string& column, const std::string& cell) {
    written(column, cell);
    std::string said = refused({"simulate", "--published=one.csv"});
    EXPECT_NE(said.find("one.csv:2: " + column + " = \"" + cell + "\": expected "), std::string::npos) << said;
    return said;
  };
  expect_part(why("zero/dist_opt", "zero4"), "zero1, zero2, zero3");
  expect_part(why("zero/dist_opt", "fspd"), "the nearest is 'fsdp'");
  expect_part(why("seq_parallel", "ye"), "the nearest is 'yes'");
  expect_part(why("gpus", "4"), "pp·dp·tp·cp = 2");
  expect_part(why("dp", "2.9"), "a whole number");
  expect_part(why("attention", "banana"), "flash");
  expect_part(why("hardware", "A100-40G/IB"), "the nearest is 'A100-80G'");
  expect_part(why("hardware", "H10-80G"), "the nearest is 'h100'");
  for (const char* value : {"0", "-1", "nan", "inf", "one"}) expect_part(why("value", value), "a number above 0");
  expect_part(why("recompute", "ful"), "the nearest is 'full'");
  expect_part(why("unit", "ms"), "s of iter_time");
  expect_part(why("kv_heads", "2"), "4 of gpt");

  const auto step = [&](const std::string& column, const std::string& cell) {
    written(column, cell);
    return json({"simulate", "--published=one.csv"})[0]["predicted"].get<double>();
  };
  const double none = step("zero/dist_opt", "No"), full = step("zero/dist_opt", "zero3");
  EXPECT_EQ(none, step("zero/dist_opt", "none"));
  EXPECT_NE(none, full);
  for (const char* same : {"ZeRO-3", "FSDP", "3"}) EXPECT_EQ(step("zero/dist_opt", same), full) << same;
  EXPECT_EQ(step("seq_parallel", "False"), step("seq_parallel", "no"));
}

TEST_F(Simulate, PublishedRunsAreInTheUnitOfTheirRow) {
  write(
      "runs.csv",
      std::string(kColumns) +
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

// Several processes: the first measures its machine, all of them what connects them, and one writes.
TEST_F(Simulate, CalibrationUnderMpiMeasuresWhatConnectsTheProcesses) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not see how MPI's own threads pass messages on";
#endif
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
  const Finished f = Running(folder(), {"calibrate", "tiny.toml", "--out=here.toml"}, 2).wait();
  ASSERT_EQ(f.code, 0) << f.out << f.err;
  const std::string text = f.out;
  EXPECT_EQ(text.find("written to here.toml"), text.rfind("written to here.toml")) << text;
  expect_part(read("here.toml"), "transport = \"mpi\"");
  expect_part(read("here.toml"), "collective = \"message\", ranks = 2");
  EXPECT_EQ(json(on("here.toml", {"--parallel.mesh=dp=2"}))["ranks"], 2);
  // What is wrong is said once.
  const Finished wrong = Running(folder(), {"calibrate", "tiny.toml", "--out=text.txt"}, 2).wait();
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err.find("is no calibration"), wrong.err.rfind("is no calibration")) << wrong.err;
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
