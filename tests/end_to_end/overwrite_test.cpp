// Overwriting a run: what is read for it is read first, and never what is overwritten.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "end_to_end/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class Overwrite : public Program {
 protected:
  void train(const std::string& run) const { done({"train", "tiny.toml", "--output.dir=" + run}); }
  fs::path path(const std::string& name) const { return folder() / name; }
  void flip(const std::string& file, std::streamoff from_end) const {
    std::fstream io(path(file), std::ios::in | std::ios::out | std::ios::binary);
    io.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(io.get());
    io.seekp(-from_end, std::ios::end);
    io.put(static_cast<char>(byte ^ 1));
  }
  // What the command refuses names `part`, and `run` is the one that it was.
  void expect_kept(const std::string& run, const std::vector<std::string>& arguments, const std::string& part) const {
    const auto all = [&] {
      std::vector<std::string> found;
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path(run)))
        found.push_back(entry.path().string() + (entry.is_regular_file() ? ": " + contents(entry.path()) : ""));
      std::sort(found.begin(), found.end());
      return found;
    };
    const std::vector<std::string> before = all();
    expect_part(refused(arguments), part);
    EXPECT_TRUE(all() == before) << "changed by " << part;
  }

 private:
  static std::string contents(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
};

std::vector<std::string> overwriting(const std::string& run, std::vector<std::string> more) {
  more.insert(more.begin(), {"train", "tiny.toml", "--output.dir=" + run, "--overwrite"});
  return more;
}

TEST_F(Overwrite, ATeacherIsNotOverwritten) {
  train("run");
  const std::string error = "is the folder that the run would be written to";
  expect_kept("run", overwriting("run", {"--distil.teacher=run"}), "distil.teacher = \"run\" " + error);
  expect_kept("run", overwriting("./run/", {"--distil.teacher=" + path("run").string()}), error);
  fs::create_directory_symlink("run", path("same"));
  expect_kept("run", overwriting("run", {"--distil.teacher=same"}), error);
  expect_kept("run", overwriting("same", {"--distil.teacher=run"}), error);
  // Its checkpoints alone are those of the run.
  fs::create_directory(path("teacher"));
  fs::copy(path("run/config.toml"), path("teacher/config.toml"));
  fs::create_directory_symlink("../run/checkpoints", path("teacher/checkpoints"));
  expect_kept("run", overwriting("run", {"--distil.teacher=teacher"}), "distil.teacher = \"teacher\" is in part");
  done(overwriting("other", {"--distil.teacher=teacher"}));
}

TEST_F(Overwrite, WhatCannotBeReadLeavesTheRun) {
  train("run");
  train("teacher");
  flip("teacher/checkpoints/" + step_name(kSteps) + "/state.safetensors", 5);
  expect_kept("run", overwriting("run", {"--distil.teacher=teacher"}), "teacher");
  done({"export", "run", "hf"});
  flip("hf/model.safetensors", 5);
  expect_kept("run", {"train", "hf", "--data.text=text.txt", "--output.dir=run", "--overwrite"},
              "its checksum does not match");
  // A run that starts leaves nothing either.
  refused({"train", "hf", "--data.text=text.txt", "--output.dir=fresh"});
  EXPECT_FALSE(exists("fresh"));
}

TEST_F(Overwrite, DataWhereTheRunIsWrittenAreRefused) {
  train("run");
  fs::copy(path("text.txt"), path("run/checkpoints/text.txt"));
  const std::string error = "is in part where the run would be written";
  expect_kept("run", overwriting("run", {"--data.text=run/checkpoints/text.txt"}), error);
  expect_kept("run", overwriting("run", {"--data.text=run/checkpoints/*.txt@0.5"}), error);
  expect_kept("run", overwriting("run", {"--data.text=text.txt", "--data.eval=run/log.txt"}), "data.eval = ");
  fs::create_symlink("run/checkpoints/text.txt", path("link.txt"));
  expect_kept("run", overwriting("run", {"--data.text=link.txt"}), error);
  // Its checkpoints lie elsewhere, where they stay: the link is what is replaced.
  fs::rename(path("run/checkpoints"), path("elsewhere"));
  fs::create_directory_symlink("../elsewhere", path("run/checkpoints"));
  expect_kept("run", overwriting("run", {"--data.text=run/checkpoints/text.txt"}), error);
  done(overwriting("run", {"--data.text=elsewhere/text.txt"}));
  EXPECT_TRUE(exists("elsewhere/text.txt"));
}

// With a run in it, the folder would be a run for every command and the model no longer be found.
TEST_F(Overwrite, AHuggingFaceFolderDoesNotBecomeARun) {
  train("run");
  done({"export", "run", "hf"});
  for (const char* mode : {"--overwrite", "--resume", "--train.steps=2"})
    expect_kept("hf", {"train", "tiny.toml", "--output.dir=hf", mode}, "holds a Hugging Face model (a config.json)");
  expect_kept("hf", overwriting("hf", {"--distil.teacher=hf"}), "hf");
  expect_kept("hf", {"import", "hf", "hf", "--overwrite"}, "hf");
  expect_kept("hf", {"compress", "run", "--out", "hf", "--weights", "int8", "--overwrite"}, "Hugging Face model");
  // One that became a run before is called what it is.
  fs::copy(path("run/config.toml"), path("hf/config.toml"));
  expect_part(refused({"import", "hf", "new"}),
              "hf holds a run, which the other commands take as it is; there is a config.json too");
}

// What names a run's own file by mistake leaves it, also where other files of its kind are replaced.
TEST_F(Overwrite, FilesOfARunAreNotReplaced) {
  train("run");
  expect_kept("run", {"memory", "tiny.toml", "--brief", "--plan-out=run/plan.toml"},
              "--plan-out run/plan.toml: that is the plan of the run in run; name another file");
  for (int times = 0; times < 2; ++times) done({"memory", "tiny.toml", "--brief", "--plan-out=plan.toml"});
  for (const char* file : {"run/config.toml", "run/metrics.jsonl"})
    expect_kept("run", {"tokenize", "--train=300", std::string("--out=") + file, "text.txt", "--overwrite"},
                std::string("--out ") + file + ": that is there, and is no tokenizer; name another file");
  for (int times = 0; times < 2; ++times)
    done({"tokenize", "--train=300", "--out=tokenizer.json", "text.txt", "--overwrite"});
}

// Only a link of that name is the program's own.
TEST_F(Overwrite, WhatAPersonCalledLatestStays) {
  fs::create_directory(path("runs"));
  write("runs/latest", "mine");
  done({"train", "tiny.toml", "--train.steps=2"});
  EXPECT_EQ(read("runs/latest"), "mine");
  fs::remove(path("runs/latest"));
  fs::create_directory(path("runs/latest"));
  done({"train", "tiny.toml", "--train.steps=2"});
  EXPECT_FALSE(fs::is_symlink(path("runs/latest")));
}

// As `cp -rL` leaves it.
TEST_F(Overwrite, ACopyOfTheLatestRunGoesOn) {
  done({"train", "tiny.toml", "--train.steps=2"});
  fs::remove(path("runs/latest"));
  fs::copy(path("runs/tiny"), path("runs/latest"), fs::copy_options::recursive);
  done({"train", "--resume", "--train.steps=4"});
  EXPECT_EQ(metrics("runs/latest").back()["step"], 4);
  EXPECT_EQ(metrics("runs/tiny").back()["step"], 2);
}

TEST_F(Overwrite, AnExportToALinkReplacesWhatItLeadsTo) {
  train("run");
  done({"export", "run", "hf"});
  done({"export", "run", "model.gguf"});
  fs::create_directory_symlink("hf", path("link"));
  fs::create_symlink("model.gguf", path("link.gguf"));
  fs::remove(path("hf/config.json"));
  write("hf/config.json", "{}");
  done({"export", "run", "link", "--overwrite"});
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_NE(read("hf/config.json"), "{}");
  fs::resize_file(path("model.gguf"), 4);
  done({"export", "run", "link.gguf", "--overwrite"});
  EXPECT_TRUE(fs::is_symlink(path("link.gguf")));
  EXPECT_GT(fs::file_size(path("model.gguf")), 4U);
}

}  // namespace
}  // namespace trireme::testing
