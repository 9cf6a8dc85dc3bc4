// What the whole process takes: never more than its arenas and what `trireme memory` lists outside of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <vector>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

class Resident : public Program {
 protected:
  struct Predicted {
    std::int64_t arenas = 0;
    std::int64_t outside = 0;
    std::int64_t resumed = 0;  // more, on resuming
  };

  Predicted predicted(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"memory", "tiny.toml", "--json", "--brief"});
    const auto json = nlohmann::json::parse(done(settings).out);
    Predicted p;
    for (const auto& rank : json.at("ranks")) p.arenas += rank.at("predicted_peak_bytes").get<std::int64_t>();
    for (const auto& one : json.at("outside"))
      (one.at("when_resumed").get<bool>() ? p.resumed : p.outside) += one.at("bytes").get<std::int64_t>();
    EXPECT_EQ(json.at("resident_bound_bytes").get<std::int64_t>(), p.arenas + p.outside);
    return p;
  }

  void expect_within(const std::vector<std::string>& settings, bool resumed = true) const {
    // A bound that is far off says nothing: the arenas are most of what there is, and they are in use.
    const Predicted p = expect_no_more(settings, resumed);
    EXPECT_GT(p.arenas, p.outside / 3) << "the configuration is too small to show anything";
  }

  // `used`: the share of the bound that is taken at least.
  Predicted expect_no_more(const std::vector<std::string>& settings, bool resumed, double used = 0) const {
    const Predicted p = predicted(settings);
    std::vector<std::string> train = settings;
    train.insert(train.begin(), {"train", "tiny.toml", "--output.dir=run"});
    const Finished f = done(train);
    EXPECT_LE(f.peak_bytes, p.arenas + p.outside);
    EXPECT_GT(f.peak_bytes, p.arenas) << "the configuration is too small to show anything";
    EXPECT_GT(static_cast<double>(f.peak_bytes), used * static_cast<double>(p.arenas + p.outside)) << "far off";
    if (!resumed) return p;
    train.insert(train.end(), {"--resume", "--train.steps=4"});
    EXPECT_LE(done(train).peak_bytes, p.arenas + p.outside + p.resumed) << "resumed";
    return p;
  }

  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers take memory of their own";
#endif
  }

  // Ranks that are processes: the largest of them, next to what the first says of itself when it ends.
  void expect_processes_within(int processes, std::vector<std::string> settings) const {
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
    settings.insert(settings.begin(), {"train", "tiny.toml", "--output.dir=run"});
    const Finished f = Running(folder(), settings, processes).wait();
    ASSERT_EQ(f.code, 0) << f.out << f.err;
    const std::regex line(
        R"(planned ([0-9,]+) B on the fullest rank; measured: ([0-9.]+) MiB of the whole process, at most ([0-9.]+) MiB predicted ✓)");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(f.out, found, line)) << f.out;
    constexpr double kMiB = 1 << 20;
    std::string planned = found[1];
    std::erase(planned, ',');
    const double bound = std::stod(found[3]);
    std::printf("%s; the largest of all processes took %.1f MiB\n", found[0].str().c_str(),
                static_cast<double>(f.peak_bytes) / kMiB);
    EXPECT_LE(static_cast<double>(f.peak_bytes) / kMiB, bound);
    EXPECT_GT(static_cast<double>(f.peak_bytes), std::stod(planned));
    EXPECT_GT(std::stod(planned) / kMiB, bound / 6) << "the configuration is too small to show anything";
  }

  // About 40 MiB of weights, gradients, optimizer states and staging.
  std::vector<std::string> wide(std::vector<std::string> more) const {
    more.insert(more.begin(), {"--model.layers=4", "--model.width=256", "--model.heads=4", "--model.context=64",
                               "--train.batch=8", "--train.steps=3", "--train.decay_steps=4"});
    return more;
  }
};

// Runs on text that is turned into tokens: lines of words, 30 MB of them.
class ResidentText : public Resident {
 protected:
  enum class Form { text, json_lines, one_json_line };

  void expect_within(Form form, const std::string& tokenizer) const {
    const std::string name = form == Form::text ? "long.txt" : "long.jsonl";
    write_words(name, form);
    Resident::expect_within(
        wide({"--parallel.mesh=dp=1", "--data.text=" + name, "--data.tokenizer=" + tokenizer, "--model.layers=6"}),
        false);
  }
  static std::string tokenizer() { return source_dir() + "/tests/tokenizers/gpt2.json"; }

 private:
  void write_words(const std::string& name, Form form) const {
    constexpr std::size_t kBytes = 30'000'000;
    constexpr int kDocument = 40;  // lines
    const bool json = form != Form::text;
    std::ofstream out(folder() / name, std::ios::binary);
    const std::string begin = R"({"id": 7, "text": ")";
    const std::string end = "\"}\n";
    if (json) out << begin;
    std::uint64_t state = 1;
    int lines = 0;
    for (std::size_t bytes = 0; bytes < kBytes;) {
      std::string line;
      for (int word = 0; word < 12; ++word) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        for (std::uint64_t letters = state >> 33; letters > 0; letters /= 20)
          line += "etaoinshrdlucmfwypvb"[letters % 20];
        line += word == 11 ? "." : " ";
      }
      out << line << (json ? "\\n" : "\n");
      bytes += line.size();
      if (form == Form::json_lines && ++lines % kDocument == 0) out << end << begin;
    }
    if (json) out << end;
  }
};

TEST_F(ResidentText, Encoded) { expect_within(Form::text, tokenizer()); }
TEST_F(ResidentText, JsonLines) { expect_within(Form::json_lines, tokenizer()); }
TEST_F(ResidentText, OneJsonLine) { expect_within(Form::one_json_line, tokenizer()); }
TEST_F(ResidentText, OneJsonLineOfBytes) { expect_within(Form::one_json_line, "bytes"); }

TEST_F(Resident, OneRank) { expect_within(wide({"--parallel.mesh=dp=1"})); }
// What started the program may have been large itself.
TEST_F(Resident, OfThisProcessAndNotOfItsParent) {
  constexpr std::size_t kParent = std::size_t{600} << 20;
  std::vector<char> large(kParent, 1);
  const std::vector<std::string> train = {"train", "tiny.toml", "--output.dir=run"};
  const Finished f = done(train);
  ASSERT_EQ(std::count(large.begin(), large.end(), 1), static_cast<std::ptrdiff_t>(kParent));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(f.out, found, std::regex(R"(measured: ([0-9.]+) MiB of the whole process)"))) << f.out;
  EXPECT_LT(std::stod(found[1]), 300);
}
// What the system can drop is no reason not to run.
TEST_F(Resident, FilesMayBeLargerThanMemory) {
  constexpr std::uintmax_t kLarge = std::uintmax_t{1} << 40;
  std::ofstream(folder() / "large.bin").close();
  std::filesystem::resize_file(folder() / "large.bin", kLarge);
  const Finished f = done({"train", "tiny.toml", "--data.text=[]", "--data.tokens=large.bin", "--model.vocab=256",
                           "--train.steps=1", "--train.warmup=1", "--output.dir=run"});
  EXPECT_LT(f.peak_bytes, std::int64_t{300} << 20);
}
TEST_F(Resident, ShardedState) { expect_within(wide({"--parallel.mesh=dp=2", "--parallel.zero=3"})); }
TEST_F(Resident, OffloadedState) {
  expect_within(wide({"--parallel.mesh=dp=1", "--model.width=512", "--memory.offload=optimizer",
                      "--output.staging=1MiB", "--train.batch=32"}));
}
TEST_F(Resident, ManyMicroBatchesOfADeepModel) {
  expect_within({"--parallel.mesh=dp=1", "--model.layers=60", "--model.width=64", "--model.heads=2",
                 "--model.context=32", "--train.batch=16", "--train.micro_batch=4", "--train.steps=3",
                 "--train.decay_steps=4"});
}

// Small layers, and many: graphs and programs are most of what there is.
class ResidentDeep : public Resident {
 protected:
  void expect_within(int layers, std::vector<std::string> settings, bool resumed = false) const {
    const char* asked = std::getenv("TRIREME_LAYERS");
    settings.insert(settings.begin(), {"--model.layers=" + (asked != nullptr ? asked : std::to_string(layers)),
                                       "--train.steps=2", "--train.warmup=1", "--train.decay_steps=4"});
    expect_no_more(settings, resumed, 0.5);
  }
};

TEST_F(ResidentDeep, OneRank) { expect_within(400, {"--parallel.mesh=dp=1"}, true); }
TEST_F(ResidentDeep, DataParallel) { expect_within(300, {"--parallel.mesh=dp=2"}); }
TEST_F(ResidentDeep, TensorParallel) { expect_within(200, {"--parallel.mesh=tp=2"}); }
TEST_F(ResidentDeep, Sharded) { expect_within(200, {"--parallel.mesh=dp=2", "--parallel.zero=3"}); }
TEST_F(ResidentDeep, Recomputed) { expect_within(300, {"--parallel.mesh=dp=1", "--memory.remat=full"}); }
TEST_F(ResidentDeep, HalfPrecision) { expect_within(200, {"--parallel.mesh=dp=1", "--train.precision=fp16"}); }
TEST_F(ResidentDeep, Stages) { expect_within(200, {"--parallel.mesh=pp=4", "--train.micro_batch=1"}); }
TEST_F(ResidentDeep, Servers) { expect_within(150, {"--parallel.mesh=dp=2", "--parallel.server=sync"}); }
TEST_F(ResidentDeep, ManyMicroBatches) {
  expect_within(24, {"--parallel.mesh=dp=1", "--train.batch=32", "--train.micro_batch=1"});
}
// Within a limit of memory: many plans are looked at before one is taken.
TEST_F(ResidentDeep, PlannedWithinALimit) { expect_within(100, {"--parallel.mesh=dp=1", "--memory.limit=12MiB"}); }

TEST_F(Resident, Stages) { expect_within(wide({"--parallel.mesh=pp=2", "--train.micro_batch=2"})); }
TEST_F(Resident, Processes) { expect_processes_within(2, wide({"--parallel.mesh=dp=2", "--parallel.zero=1"})); }
// Without mpirun too: what is outside the plan is that of one process, and not of all ranks as threads.
TEST_F(Resident, ProcessesOnPaper) {
  const auto predicted = [&](const std::string& ranks) {
    return nlohmann::json::parse(done({"memory", "tiny.toml", "--json", "--brief", "--parallel.mesh=dp=" + ranks,
                                       "--runtime.transport=mpi", "--train.batch=8"})
                                     .out);
  };
  const nlohmann::json two = predicted("2");
  EXPECT_EQ(two["processes"], 2);
  const auto bytes = [](const nlohmann::json& memory, const std::string& name) {
    for (const auto& one : memory["outside"])
      if (one["name"] == name) return one["bytes"].get<std::int64_t>();
    return std::int64_t{0};
  };
  // A thread that computes, and two streams.
  EXPECT_EQ(bytes(two, "threads"), 3 << 20);
  const nlohmann::json eight = predicted("8");
  EXPECT_EQ(eight["processes"], 8);
  EXPECT_EQ(bytes(eight, "threads"), 3 << 20);
  // MPI has something for each further rank.
  EXPECT_EQ(bytes(eight, "mpi") - bytes(two, "mpi"), 6 << 20);
  std::int64_t sum = eight["ranks"][0]["predicted_peak_bytes"].get<std::int64_t>();
  for (const auto& one : eight["outside"])
    if (!one["when_resumed"].get<bool>()) sum += one["bytes"].get<std::int64_t>();
  EXPECT_EQ(eight["resident_bound_bytes"], sum);
  expect_part(done({"memory", "tiny.toml", "--brief", "--parallel.mesh=dp=2", "--runtime.transport=mpi"}).out,
              "outside the plan, of each of the 2 processes");
}

TEST_F(Resident, Servers) { expect_within(wide({"--parallel.mesh=dp=2", "--parallel.server=sync"})); }
TEST_F(Resident, TracedImages) {
  expect_within({"--model.family=resnet", "--model.layers=18", "--model.width=16", "--model.image=32",
                 "--data.images=synthetic", "--data.text=[]", "--train.batch=64", "--parallel.mesh=dp=2",
                 "--train.steps=3", "--train.decay_steps=4", "--runtime.trace=trace.json"});
}

}  // namespace
}  // namespace trireme::testing
