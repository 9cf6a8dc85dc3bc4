// Trained models in use, and files that commands write: nothing is ignored, lost or replaced in silence.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

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

TEST_F(Used, WhatIsMissingIsSaidOfTheCommand) {
  done({"train", "tiny.toml", "--output.dir=run"});
  done({"export", "run", "hf"});
  expect_part(refused({"eval", "--from=hf"}), "there is nothing to evaluate: name text in data.text");
  expect_part(refused({"train", "hf", "--output.dir=more"}), "there is nothing to train on: name text in data.text");
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
    // What keeps nothing stays what it is: as root a rename would take /dev/null from everybody.
    ASSERT_EQ(::mkfifo((folder() / "out.file").c_str(), 0600), 0);
    std::thread reader([&] { EXPECT_GT(read("out.file").size(), 100U); });
    done(command);
    if (!fs::is_fifo(folder() / "out.file")) {
      reader.detach();
      FAIL() << command[0] << " has replaced a pipe";
    }
    reader.join();
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

// Models that processes use together, each of which is a rank.
class UsedByProcesses : public Program {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the sanitizer takes how MPI's threads pass messages on for races";
#endif
    if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "no mpirun";
    train("run", {});
  }
  void train(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",           "tiny.toml",       "--output.dir=" + run, "--model.layers=2",
                                      "--model.heads=4", "--model.width=32"};
    words.insert(words.end(), more.begin(), more.end());
    done(words);
  }
  Finished processes(int count, const std::vector<std::string>& words) const {
    return Running(folder(), words, count).wait();
  }
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::size_t errors(const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("error: ", at)) != std::string::npos; ++at) ++count;
    return count;
  }

  const std::vector<std::string> eval_ = {"eval", "--from=run", "--json"};
  const std::vector<std::string> generate_ = {"generate", "--from=run", "--prompt=oar", "--tokens=24", "--json"};
};

// To the last digit of a loss, and token for token: one output, that of threads on the same mesh.
TEST_F(UsedByProcesses, EvaluateAndGenerateAsThreadsDo) {
  done({"export", "run", "theirs"});
  const auto expect_same = [&](int count, const std::vector<std::string>& words) {
    SCOPED_TRACE(fmt::format("{} {}", words[0], words.back()));
    const Finished f = processes(count, words);
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.out, done(words).out);
  };
  expect_same(3, with(eval_, {"--parallel.mesh=dp=3"}));
  expect_same(4, with(eval_, {"--parallel.allreduce=ring", "--parallel.mesh=tp=4"}));
  expect_same(4, with(generate_, {"--parallel.allreduce=ring", "--parallel.mesh=tp=4"}));
  for (const auto& words : {eval_, generate_}) {
    expect_same(2, with(words, {"--parallel.mesh=pp=2"}));
    expect_same(4, with(words, {"--train.precision=bf16", "--parallel.mesh=pp=2,tp=2"}));
    std::vector<std::string> imported = with(words, {"--data.text=text.txt", "--parallel.mesh=tp=2"});
    imported[1] = "--from=theirs";
    expect_same(2, imported);
  }
}

// Without a mesh of their own: that of the training where it has as many ranks, else one that can do it.
TEST_F(UsedByProcesses, ProcessesAreRanksWithoutAMesh) {
  train("sharded", {"--parallel.mesh=pp=2,dp=2", "--parallel.zero=1"});
  train("served", {"--parallel.mesh=dp=2", "--parallel.server=sync"});
  done({"compress", "run", "--out=small", "--weights=int8", "--decode=0"});
  for (const char* from : {"run", "sharded", "served", "small"})
    for (const int count : {2, 3, 4}) {
      SCOPED_TRACE(fmt::format("{} by {}", from, count));
      std::vector<std::string> eval = eval_, generate = with(generate_, {"--temperature=0"});
      eval[1] = generate[1] = fmt::format("--from={}", from);
      const Finished evaluated = processes(count, eval);
      ASSERT_EQ(evaluated.code, 0) << evaluated.err;
      const double loss = nlohmann::json::parse(evaluated.out)["loss"];
      EXPECT_NEAR(loss, nlohmann::json::parse(done(eval).out)["loss"].get<double>(), 1e-5 * loss);
      const Finished generated = processes(count, generate);
      EXPECT_EQ(generated.code, 0) << generated.err;
      EXPECT_EQ(generated.out, done(generate).out);
    }
}

TEST_F(UsedByProcesses, ErrorsAreSaidOnce) {
  const auto said = [&](const std::vector<std::string>& words, int code) {
    const Finished f = processes(2, words);
    EXPECT_EQ(f.code, code) << f.err;
    EXPECT_EQ(errors(f.err), 1U) << f.err;
    EXPECT_EQ(f.out, "");
    return f.err;
  };
  expect_part(said({"eval", "--from=rum"}, 2), "error: --from rum: there is no such folder; did you mean run?");
  expect_part(said(with(eval_, {"--step=77"}), 2), "error: run has no checkpoint of step 77");
  expect_part(said(with(eval_, {"--parallel.mesh=tp=4"}), 2), "has 4 ranks, and 2 were launched; launch 4, or set");
  expect_part(said(with(eval_, {"--train.lrr=1"}), 2), "unknown key train.lrr");
  expect_part(said(with(generate_, {"--parallel.mesh=dp=2"}), 2), "of which dp has nothing to shard; the nearest is");
  expect_part(said({"generate", "--from=run"}, 2), "give --prompt TEXT or --prompt-tokens 1,2,3");
  const Finished f = processes(2, with(eval_, {"--train.lr=1"}));
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.err.find("train.lr has no effect"), f.err.rfind("train.lr has no effect")) << f.err;
  // A checkpoint that only the first looks at, before any reads its part.
  const std::string shard = "run/checkpoints/" + step_name(kSteps) + "/state.safetensors";
  std::string bytes = read(shard);
  bytes[bytes.size() / 2] ^= 1;
  write(shard, bytes);
  expect_part(said(eval_, 2), "error: the only checkpoint cannot be used");
}

// Two processes that would compute different things are refused, and neither waits for the other.
TEST_F(UsedByProcesses, StartedWithDifferentSettingsTheyAreRefused) {
  const auto says = [&](const std::vector<std::string>& command, const std::string& one, const std::string& other) {
    std::vector<std::string> both = with(command, {"--parallel.mesh=tp=2", one, ":", "-n", "1", program_path()});
    both = with(both, with(command, {"--parallel.mesh=tp=2", other}));
    const Finished f = processes(1, both);
    EXPECT_EQ(f.code, 2) << f.err;
    EXPECT_EQ(errors(f.err), 1U) << f.err;
    return f.err;
  };
  const std::string settings = "were started with different settings: ";
  expect_part(says(eval_, "--batches=1", "--batches=2"), settings + "--batches is 1 on rank 0 and 2 on rank 1");
  expect_part(says(eval_, "--step=6", "--step=0"), settings + "--step is 6 on rank 0 and 0 on rank 1");
  expect_part(says({"generate", "--from=run"}, "--prompt=a", "--prompt=b"), settings + "the prompt is [97] on rank 0");
}

// Bytes that are hardly meant, and what is trained on though it is called held out.
TEST_F(Used, TextThatIsHardlyMeantIsWarnedOf) {
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train", "tiny.toml", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return done(words).err;
  };
  const std::string text = read("text.txt");
  fs::create_directory(folder() / "parts");
  write("parts/one.txt", text);
  write("packed.jsonl.gz", "\x1f\x8b\x08" + text);
  write("array.npy", "\x93NUMPY" + text);
  write("tokens.bin", std::string("a\0b\0", 4) + text);
  write("wide.txt", "\xff\xfe" + text);
  expect_parts(said({"--data.text=packed.jsonl.gz"}), {"warning: data.text: ", "packed.jsonl.gz", "gzip"});
  expect_part(said({"--data.text=array.npy"}), "an array of NumPy");
  expect_part(said({"--data.text=tokens.bin"}), "no text: for token ids name it in data.tokens");
  expect_part(said({"--data.text=wide.txt"}), "UTF-16");
  expect_parts(said({"--data.text=[\"text.txt\",\"text.txt\"]"}), {"text.txt more than once", "read once"});
  for (const char* eval : {"text.txt", "parts", "parts/one.txt"})
    expect_part(said({"--data.text=[\"text.txt\",\"parts\"]", std::string("--data.eval=") + eval}),
                "what is evaluated is trained on, and not held out");
  expect_none(said({"--data.text=parts", "--data.eval=text.txt"}), "warning");
  expect_none(said({"--data.text=text.txt@2"}), "warning: data.text");
}

}  // namespace
}  // namespace trireme::testing
