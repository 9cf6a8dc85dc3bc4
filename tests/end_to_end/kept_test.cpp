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

}  // namespace
}  // namespace trireme::testing
