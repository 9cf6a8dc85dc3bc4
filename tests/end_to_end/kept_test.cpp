// What lies where a run is written and is no run's: it stays as it is.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "end_to_end/program.h"
#include "support/source_dir.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = source_dir() + "/tests/huggingface/";

class Kept : public Program {
 protected:
  fs::path path(const std::string& name) const { return folder() / name; }
};

TEST_F(Kept, ARunWhoseNameContinuesAnothers) {
  done({"train", "tiny.toml", "--output.dir=runs/exp.new-999999999"});
  done({"train", "tiny.toml", "--output.dir=runs/exp"});
  EXPECT_TRUE(exists("runs/exp.new-999999999/checkpoints/" + step_name(kSteps)));
  EXPECT_EQ(names_in("runs"), (std::vector<std::string>{"exp", "exp.new-999999999", "latest"}));
}

TEST_F(Kept, AFolderThatHoldsNoRun) {
  const std::string model = kFolders + "gpt2-tied";
  fs::create_directory(path("mine"));
  write("mine/dataset.tar.part-1", "half");
  write("mine/vocab.json", "a person's");
  const std::string error = "holds no run, and has a vocab.json that a run there would replace";
  expect_part(refused({"train", model, "--data.text=text.txt", "--output.dir=mine"}), error);
  expect_part(refused({"import", model, "mine"}), error);
  expect_part(refused({"import", model, "mine", "--overwrite"}), error);
  done({"import", model, "run"});
  expect_part(refused({"compress", "run", "--out=mine", "--weights=int8"}), error);
  EXPECT_EQ(names_in("mine"), (std::vector<std::string>{"dataset.tar.part-1", "vocab.json"}));
  EXPECT_EQ(read("mine/vocab.json"), "a person's");
  // A run without a tokenizer of its own has no use for the name.
  done({"train", "tiny.toml", "--output.dir=mine"});
  EXPECT_EQ(read("mine/vocab.json"), "a person's");
  EXPECT_EQ(read("mine/dataset.tar.part-1"), "half");
  // A run's files are the run's to replace.
  done({"import", model, "run", "--overwrite"});
  write("run/dataset.tar.part-1", "half");
  done({"train", "run", "--resume", "--data.text=text.txt", "--train.steps=1", "--train.batch=1"});
  EXPECT_TRUE(exists("run/dataset.tar.part-1"));
}

// A folder with a configuration alone holds no run, and the file is somebody's own.
TEST_F(Kept, TheConfigurationThatIsRead) {
  fs::copy(path("tiny.toml"), path("config.toml"));
  const std::string before = read("config.toml");
  for (const char* mode : {"--overwrite", "--resume", "--train.steps=2"})
    expect_part(refused({"train", "config.toml", "--output.dir=.", mode}), "has a config.toml and no run");
  EXPECT_EQ(read("config.toml"), before);
  done({"train", "config.toml", "--output.dir=run"});
}

TEST_F(Kept, ARunGoesOnWithoutItsConfiguration) {
  done({"train", "tiny.toml", "--output.dir=run", "--train.steps=2"});
  const std::string before = read("run/config.toml");
  fs::remove(path("run/config.toml"));
  done({"train", "tiny.toml", "--output.dir=run", "--resume", "--train.steps=3"});
  write("run/config.toml", "\n");
  done({"train", "run", "--resume", "--train.steps=4"});
  EXPECT_EQ(metrics("run").size(), 4U);
  EXPECT_EQ(done({"eval", "--from=run", "--json"}).code, 0);
  fs::remove(path("run/config.toml"));
  fs::remove_all(path("run/checkpoints"));
  expect_part(refused({"train", "run", "--resume"}),
              "run/config.toml is lost, and no checkpoint of the run has a copy");
}

// Files would otherwise take the place of closed output, and get what is printed.
TEST_F(Kept, MetricsWhereOutputIsClosed) {
  const std::string command =
      fmt::format("cd '{}' && '{}' train tiny.toml --output.dir=run --train.steps=3 <&- >&- 2>&-", folder().string(),
                  program_path());
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(metrics("run").size(), 3U);
}

// What training would refuse before its first step, a dry run refuses in the same words.
TEST_F(Kept, ADryRunReadsWhatTheRunWouldRead) {
  fs::copy(kFolders + "gpt2-tied", path("model"));
  const auto alike = [&](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "train");
    const std::string error = refused(words);
    expect_part(error, part);
    words.emplace_back("--dry-run");
    EXPECT_EQ(refused(words), error);
  };
  const std::vector<std::string> model = {"model", "--data.text=text.txt", "--output.dir=run"};
  fs::resize_file(path("model/model.safetensors"), fs::file_size(path("model/model.safetensors")) / 2);
  alike(model, "model.safetensors");
  fs::resize_file(path("model/model.safetensors"), 0);
  alike(model, "model.safetensors");
  fs::remove(path("model/model.safetensors"));
  alike(model, "model");
  alike({"tiny.toml", "--runtime.device=cpu", "--runtime.transport=nccl"}, "is between GPUs");
  EXPECT_FALSE(exists("run"));
}

// A file that `trireme config` writes does what the command line does that it was written for.
TEST_F(Kept, AWrittenConfigurationDoesTheSame) {
  const auto idx = [](const std::vector<unsigned>& extents, std::size_t bytes) {
    std::string text = {'\0', '\0', '\10', static_cast<char>(extents.size())};
    for (const unsigned extent : extents) text += {'\0', '\0', '\0', static_cast<char>(extent)};
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(i % 10);
    return text;
  };
  fs::create_directory(path("im"));
  write("im/train-images-idx3-ubyte", idx({30, 14, 14}, 30UL * 14 * 14));
  write("im/train-labels-idx1-ubyte", idx({30}, 30));
  fs::copy(kFolders + "llama-grouped", path("llama"));
  const std::vector<std::vector<std::string>> lines = {
      {"quickstart"},
      {"quickstart", "--model.layers=1"},
      {"quickstart", "--parallel.mesh=dp=1", "--train.precision=bf16"},
      {"tiny.toml", "--train.optimizer=sgd"},
      {"tiny.toml", "--data.text=none.txt"},
      {"mlp", "--data.images=im", "--train.batch=4"},
      {"mlp", "--data.images=im", "--model.image=32", "--train.batch=4"},
      {"llama"},
      {"llama", "--data.tokens=" + kFolders + "tokens.bin"},
      {"llama", "--data.tokens=" + kFolders + "tokens.bin", "--model.context=8"},
      {kFolders + "gpt2-tied", "--data.text=text.txt"},
      {"quickstart", "--init.from=llama"},
  };
  // The plan and what it needs; the first line names the configuration, and so do those that say how it is launched.
  const auto planned = [](const Finished& f) {
    const std::size_t first = f.out.find('\n');
    return f.code == 0 && first != std::string::npos ? f.out.substr(first, f.out.find("\nlaunch ") - first)
                                                     : std::to_string(f.code);
  };
  for (std::vector<std::string> words : lines) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(words, " ")));
    words.insert(words.begin(), "config");
    const Finished shown = run(words);
    words.front() = "train";
    words.emplace_back("--dry-run");
    const Finished direct = run(words);
    if (shown.code != 0) {
      EXPECT_EQ(shown.err, direct.err);
      continue;
    }
    write("written.toml", shown.out);
    const Finished again = run({"train", "written.toml", "--dry-run"});
    EXPECT_EQ(planned(again), planned(direct)) << direct.err << again.err;
    if (direct.code != 0) {
      EXPECT_EQ(again.err.substr(0, 40), direct.err.substr(0, 40));
    }
  }
  expect_parts(run({"config", "mlp", "--data.images=im"}).out,
               {"image = 14  # of the files of data.images", "channels = 1  # of the files of data.images"});
  expect_part(done({"config", "llama"}).out, "text = []");
}

}  // namespace
}  // namespace trireme::testing
