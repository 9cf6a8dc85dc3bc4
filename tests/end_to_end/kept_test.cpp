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
