// Trained models in use, and files that commands write: nothing is ignored, lost or replaced in silence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "end_to_end/program.h"
#include "trireme/train/config.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Used : public Program {};

// Every key either matters to a model in use, or is warned of by name; one that does not matter is not refused with
// others.
TEST_F(Used, KeysOfTrainingAreWarnedOfByName) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::vector<std::string> matter = {
      "train.precision",      "memory.weights",  "memory.weight_bits", "runtime.device",    "runtime.threads",
      "parallel.mesh",        "parallel.stages", "parallel.sequence",  "parallel.async_tp", "parallel.stage_dtype",
      "parallel.overlap",     "parallel.bucket", "parallel.allreduce", "parallel.timeout",  "parallel.sharding",
      "memory.linear_inputs", "memory.kv_cache"};
  std::vector<std::string> settings, keys;
  for (const train::KeyText& key : train::key_texts()) {
    const bool section = key.name.starts_with("model.") || key.name.starts_with("data.");
    if (section || std::find(matter.begin(), matter.end(), key.name) != matter.end()) continue;
    keys.push_back(key.name);
    settings.push_back(fmt::format("--{}={}", key.name, key.value));
  }
  EXPECT_GT(keys.size(), 40U);
  // Values that are refused together in training.
  settings.insert(settings.end(), {"--parallel.server=sync", "--parallel.zero=2", "--memory.limit=1KiB"});
  const auto plain = [&](const std::vector<std::string>& command) { return done(command).out; };
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"eval", "--from=run"}, {"generate", "--from=run", "--prompt=oar", "--tokens=4", "--temperature=0"}}) {
    std::vector<std::string> words = command;
    words.insert(words.end(), settings.begin(), settings.end());
    const Finished f = done(words);
    for (const std::string& key : keys)
      expect_part(f.err, fmt::format("warning: {} has no effect on trireme {}", key, command[0]));
    EXPECT_EQ(f.out, plain(command));
    EXPECT_EQ(done(command).err.find("warning"), std::string::npos);
  }
  const Finished small = done({"compress", "run", "--out=small", "--weights=int8", "--decode=0", "--train.lr=1",
                               "--parallel.mesh=dp=4", "--memory.remat=full"});
  for (const char* key : {"train.lr", "parallel.mesh", "memory.remat"})
    expect_part(small.err, fmt::format("warning: {} has no effect on trireme compress", key));
  // They are keys and values all the same.
  expect_part(refused({"eval", "--from=run", "--train.lrr=1"}), "did you mean train.lr?");
  expect_part(refused({"eval", "--from=run", "--train.lr=fast"}), "train.lr");
}

// A run's paths are those of where it was started, wherever it is used from; the command line's are those of now.
TEST_F(Used, FromAnotherFolder) {
  done({"train", "tiny.toml", "--output.dir=run"});
  const std::string here = done({"eval", "--from=run", "--json"}).out;
  fs::create_directories(folder() / "elsewhere");
  const auto there = [&](std::vector<std::string> words) { return Running(folder() / "elsewhere", words).wait(); };
  EXPECT_EQ(there({"eval", "--from=../run", "--json"}).out, here);
  // Runs that other commands made of it are no different.
  done({"compress", "run", "--out=small", "--weights=int8", "--decode=0"});
  EXPECT_EQ(there({"eval", "--from=../small", "--json"}).out, done({"eval", "--from=small", "--json"}).out);
  // Another file of that name is another file.
  write("elsewhere/text.txt", read("text.txt").substr(0, 2000));
  EXPECT_EQ(there({"eval", "--from=../run", "--json"}).out, here);
  EXPECT_NE(there({"eval", "--from=../run", "--json", "--data.text=text.txt"}).out, here);
  // Training goes on with its own data too, and the folder can be moved with all that is in it.
  const Finished more = there({"train", "../run", "--resume", "--train.steps=8"});
  EXPECT_EQ(more.code, 0) << more.err;
  expect_none(more.err, "data have changed");
  done({"train", "tiny.toml", "--output.dir=again/run"});
  fs::create_directories(folder() / "moved");
  for (const char* name : {"tiny.toml", "text.txt"}) fs::copy(folder() / name, folder() / "moved" / name);
  fs::rename(folder() / "again/run", folder() / "moved/run");
  const Finished moved =
      Running(folder() / "moved", {"train", "tiny.toml", "--resume", "--output.dir=run", "--train.steps=8"}).wait();
  EXPECT_EQ(moved.code, 0) << moved.err;
}

TEST_F(Used, ModelsOfImagesAreComparedByAccuracy) {
  done({"train", "mlp", "--data.images=synthetic", "--model.image=8", "--model.width=16", "--train.steps=4",
        "--train.batch=8", "--output.dir=run"});
  const std::string out = done({"compress", "run", "--out=small", "--prune=neurons:0.3"}).out;
  expect_none(out, "perplexity");
  expect_part(out, "   accuracy ");
  expect_part(out, " points");
  expect_part(refused({"compress", "run", "--out=other"}), "--distil");
}

// A file that somebody else wrote is not replaced; one of the same kind is.
TEST_F(Used, FilesOfOthersAreNotReplaced) {
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", "schedule", "--stages=2", "--micro-batches=4", "--svg=out.file"},
      {"simulate", "tiny.toml", "--cluster=h100", "--trace=out.file"},
      {"train", "tiny.toml", "--output.dir=run", "--overwrite", "--train.steps=2", "--runtime.trace=out.file"},
  };
  for (const std::vector<std::string>& command : commands) {
    for (const char* mine : {"my thesis\n", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "{\"traceEvents\":[]}"}) {
      write("out.file", mine);
      const Finished f = run(command);
      EXPECT_EQ(f.code, 2) << command[0] << "\n" << f.err;
      expect_part(f.err, "out.file");
      expect_part(f.err, "that is there, and is no ");
      EXPECT_EQ(read("out.file"), mine);
    }
    fs::remove(folder() / "out.file");
    done(command);
    EXPECT_GT(read("out.file").size(), 100U);
    done(command);
    fs::remove(folder() / "out.file");
  }
  // A trace of a run in the place of one of a simulation.
  done(commands[1]);
  done(commands[2]);
}

// 1-bit Adam keeps the variance of its warm-up: too short a one is worth a word, the one that is named is not.
TEST_F(Used, AShortWarmUpOfOneBitAdamIsWarnedOf) {
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train",
                                      "tiny.toml",
                                      "--dry-run",
                                      "--parallel.mesh=dp=2",
                                      "--parallel.compress=onebit",
                                      "--train.steps=400",
                                      "--train.warmup=10"};
    words.insert(words.end(), more.begin(), more.end());
    return done(words).err;
  };
  const std::string text = said({"--parallel.compress_warmup=5"});
  expect_part(text, "warning: parallel.compress = \"onebit\" keeps the variance that AdamW has learned in 5 steps");
  expect_part(text, "parallel.compress_warmup = 90 ");
  expect_none(said({"--parallel.compress_warmup=90"}), "warning");
  expect_none(said({}), "warning");
  expect_none(said({"--parallel.compress_warmup=5", "--train.optimizer=sgd"}), "variance");
  // One that is as long as the run leaves nothing to compress; its steps are timed as any others are.
  expect_part(said({"--parallel.compress_warmup=400"}), "has no effect: its warm-up of 400 steps is as long as");
  const std::string out = done({"train", "tiny.toml", "--output.dir=run", "--parallel.mesh=dp=2",
                                "--parallel.compress=onebit", "--parallel.compress_warmup=6"})
                              .out;
  expect_none(out, "forward 0% · backward 0%");
}

// One wrong label would make a hundred classes of ten.
TEST_F(Used, AWrongLabelIsNamed) {
  const auto big = [](std::uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  std::string images = std::string("\0\0\x08\x03", 4) + big(40) + big(12) + big(12);
  std::string labels = std::string("\0\0\x08\x01", 4) + big(40);
  for (int i = 0; i < 40; ++i) {
    images += std::string(144, static_cast<char>(i * 5));
    labels += static_cast<char>(i == 7 ? 99 : i % 3);
  }
  write("mnist/train-images-idx3-ubyte", images);
  write("mnist/train-labels-idx1-ubyte", labels);
  std::vector<std::string> words = {"train", "mlp", "--data.images=mnist", "--train.batch=4", "--dry-run"};
  expect_part(done(words).out, "96 of the classes have no image (");
  expect_part(done(words).out, "image 7 has label 99");
  words.emplace_back("--model.classes=10");
  const Finished f = run(words);
  EXPECT_EQ(f.code, 2) << f.err;
  expect_part(f.err, "image 7 has label 99; mend the label, or set model.classes = 100");
}

// A dry run reports and never refuses; its last line says what matters most.
TEST_F(Used, ADryRunThatWouldNotRunEndsWithThat) {
  const std::string out = done({"train", "tiny.toml", "--dry-run", "--memory.limit=10KiB"}).out;
  expect_part(out, "would not run here: memory.limit = ");
  EXPECT_TRUE(out.ends_with("as it is, this would NOT RUN HERE (see above)\n")) << out;
  EXPECT_TRUE(done({"train", "tiny.toml", "--dry-run"}).out.ends_with("nothing was trained\n"));
}

// Help is as wide as what it is read on, and says what an option is by default.
TEST_F(Used, HelpFitsAndNamesDefaults) {
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},           {"train", "--help"},    {"generate", "--help"},
      {"eval", "--help"},   {"compress", "--help"}, {"search", "--help"},
      {"plan", "--help"},   {"simulate", "--help"}, {"inspect", "--help"},
      {"memory", "--help"}, {"tokenize", "--help"}, {"bench", "comm", "--help"}};
  for (const int columns : {60, 80, 120}) {
    ::setenv("COLUMNS", std::to_string(columns).c_str(), 1);
    for (const std::vector<std::string>& command : commands) {
      const std::string out = done(command).out;
      for (std::size_t at = 0; at < out.size();) {
        const std::size_t end = std::min(out.find('\n', at), out.size());
        const std::string line = out.substr(at, end - at);
        const auto wide = std::count_if(line.begin(), line.end(),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
        // One word alone may be wider than the terminal.
        const bool one_word = line.find(' ', std::min(line.find_first_not_of(' '), line.size())) == std::string::npos;
        EXPECT_TRUE(wide <= columns || one_word) << columns << " columns: " << line;
        at = end + 1;
      }
    }
  }
  ::unsetenv("COLUMNS");
  expect_part(done({"generate", "--help"}).out, "(default 200)");
  expect_part(done({"bench", "comm", "--help"}).out, "(default 15)");
  expect_part(done({"bench", "comm", "--help"}).out, "(default 2,4)");
  // What is printed is what runs without the option.
  expect_none(done({"train", "--help"}).out, "default -1");
}

// A bound that is measured once may be above the truth: it is looked at before and after, and again where it is met.
TEST_F(Used, NoAllReduceIsQuickerThanItsBound) {
  const std::string out = done({"bench", "comm", "--ranks=2", "--sizes=64KiB,1MiB", "--algorithms=native,ring",
                                "--batches=5", "--bound", "--json"})
                              .out;
  std::map<std::int64_t, double> bounds;
  std::vector<nlohmann::json> measured;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row["transport"] == "bound")
      EXPECT_TRUE(bounds.emplace(row["bytes"], row["best_us"]).second) << "one bound of each size: " << line;
    else
      measured.push_back(row);
  }
  EXPECT_EQ(bounds.size(), 2U) << out;
  EXPECT_EQ(measured.size(), 4U) << out;
  for (const nlohmann::json& row : measured) EXPECT_GE(row["best_us"], bounds[row["bytes"]]) << row;
}

}  // namespace
}  // namespace trireme::testing
