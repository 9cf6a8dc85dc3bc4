// Hugging Face folders as a person uses them: trained on, imported, generated from, exported.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "end_to_end/program.h"
#include "support/source_dir.h"
#include "trireme/core/aside.h"
#include "trireme/core/error.h"
#include "trireme/io/hf_config.h"
#include "trireme/io/hf_names.h"
#include "trireme/io/safetensors.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = source_dir() + "/tests/huggingface/";

class HuggingFace : public Program {
 protected:
  static std::string numbers(const std::string& folder, const std::string& tensor) {
    const io::SafetensorsFile file(kFolders + folder + "/expected.safetensors");
    const auto bytes = file.bytes(file.at(tensor));
    std::vector<std::int32_t> values(bytes.size() / sizeof(std::int32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return fmt::format("{}", fmt::join(values, ","));
  }
  void copy(const std::string& name) const { fs::copy(kFolders + name, folder() / name, fs::copy_options::recursive); }
};

const std::vector<std::string> kOnTokens = {"--data.tokens=" + kFolders + "tokens.bin",
                                            "--data.order=sequential",
                                            "--data.holdout=0",
                                            "--model.context=16",
                                            "--train.batch=4",
                                            "--train.steps=3"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more = kOnTokens) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(HuggingFace, ImportedFoldersContinueAsTheirs) {
  for (const std::string name : {"gpt2-older", "llama3-tied", "llama-bf16-sharded"}) {
    done({"import", kFolders + name, name});
    EXPECT_EQ(names_in(name + "/checkpoints"), std::vector<std::string>{step_name(0)});
    const Finished f = done({"generate", "--from", name, "--prompt-tokens", numbers(name, "prompt"), "--tokens", "32",
                             "--temperature", "0"});
    EXPECT_EQ(f.out, numbers(name, "greedy") + "\n") << name;
  }
}

// By way of a run and without one: the same losses.
TEST_F(HuggingFace, TrainingFromAFolder) {
  done(with({"train", kFolders + "gpt2-tied", "--output.dir=direct"}));
  done(with({"import", kFolders + "gpt2-tied", "imported"}));
  done({"train", "imported", "--resume"});
  EXPECT_EQ(metrics("direct").size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(metrics("direct")[i]["loss"], metrics("imported")[i]["loss"]);
  EXPECT_TRUE(exists("direct/tokenizer.json"));
  EXPECT_EQ(read("direct/tokenizer.json"), read("imported/tokenizer.json"));
}

// The folder may be gone once a run has begun.
TEST_F(HuggingFace, ResumingDoesNotNeedTheFolder) {
  copy("gpt2-tied");
  done(with({"train", "gpt2-tied", "--output.dir=run"}));
  fs::remove_all(folder() / "gpt2-tied");
  done({"train", "run", "--resume", "--train.steps=5"});
  EXPECT_EQ(metrics("run").size(), 5U);
  EXPECT_EQ(refused({"train", "run", "--output.dir=other"}),
            "error: gpt2-tied/config.json: cannot be opened: No such file or directory");
}

TEST_F(HuggingFace, WhatIsExportedIsWhatWasImported) {
  for (const std::string name : {"gpt2-untied-f16", "llama-grouped"}) {
    done({"import", kFolders + name, name});
    const std::string dtype = name == "llama-grouped" ? "f32" : "f16";
    done({"export", name, name + "-out", "--dtype", dtype});
    const io::SafetensorsFile before(kFolders + name + "/model.safetensors");
    const io::SafetensorsFile after((folder() / (name + "-out") / "model.safetensors").string());
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const auto& tensor : before.tensors()) {
      const auto& other = after.at(tensor.name);
      EXPECT_EQ(other.type, tensor.type) << tensor.name;
      const auto mine = after.bytes(other);
      const auto theirs = before.bytes(tensor);
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end())) << tensor.name;
    }
  }
}

// A shorter context in training takes nothing from a Llama, which has no weights of its positions.
TEST_F(HuggingFace, ExportKeepsThePositionsThatALlamaKnows) {
  const auto positions = [](const std::string& text) {
    return nlohmann::json::parse(text)["max_position_embeddings"].get<int>();
  };
  std::ifstream source(kFolders + "llama-grouped/config.json");
  const int theirs = positions({std::istreambuf_iterator<char>(source), std::istreambuf_iterator<char>()});
  ASSERT_GT(theirs, 16);
  done(with({"train", kFolders + "llama-grouped", "--output.dir=trained"}));
  done(with({"import", kFolders + "llama-grouped", "imported"}));
  done({"train", "imported", "--resume"});
  for (const std::string run : {"trained", "imported"}) {
    done({"export", run, run + "-out"});
    EXPECT_EQ(positions(read(run + "-out/config.json")), theirs) << run;
  }
}

TEST_F(HuggingFace, ExportsInSeveralFiles) {
  done({"import", kFolders + "gpt2-tied", "run"});
  done({"export", "run", "out", "--max-shard", "20KB"});
  const std::vector<std::string> names = names_in("out");
  EXPECT_NE(std::find(names.begin(), names.end(), "model.safetensors.index.json"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "tokenizer.json"), names.end());
  EXPECT_EQ(read("out/tokenizer.json"), read("run/tokenizer.json"));
  done({"import", "out", "again"});
  EXPECT_EQ(state("again", 0), state("run", 0));
}

// No second copy of it, whatever it is stored as: what an import keeps is the weights as f32, an export one tensor.
TEST_F(HuggingFace, TheModelIsInMemoryOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers take memory of their own";
#endif
  ModelConfig model;
  model.family = "gpt2";
  model.layers = 4;
  model.width = 512;
  model.heads = 8;
  model.ffn = 2048;
  model.context = 64;
  model.vocab = 8192;
  write("big/config.json", io::hf_config_json(model, DType::f16, ""));
  const std::vector<std::byte> zeros(std::size_t{8192} * 512 * 2);
  std::vector<io::TensorToWrite> tensors;
  std::int64_t bytes = 0;  // as f32
  for (const io::HfTensor& t : io::hf_tensors(model)) {
    const TensorType type{DType::f16, t.stored};
    tensors.push_back({t.theirs, type, std::span(zeros).first(type.bytes())});
    bytes += 4 * type.elements();
  }
  io::write_safetensors((folder() / "big/model.safetensors").string(), tensors);
  // The program's own code and libraries, which a model of a few kilobytes needs as well, and buffers.
  constexpr std::int64_t kBuffers = std::int64_t{8} << 20;
  const std::int64_t import_own = done({"import", kFolders + "gpt2-tied", "small"}).peak_bytes + kBuffers;
  const std::int64_t export_own = done({"export", "small", "small-out"}).peak_bytes + kBuffers;
  EXPECT_LT(done({"import", "big", "run"}).peak_bytes, bytes + import_own);
  // Of an export one tensor at a time is in memory: its pages of the checkpoint, its values, and what is written.
  const std::int64_t largest = 2 * static_cast<std::int64_t>(zeros.size());  // the embedding as f32
  const std::int64_t one_tensor = largest + largest + largest / 2;
  EXPECT_LT(done({"export", "run", "out", "--dtype=bf16"}).peak_bytes, one_tensor + export_own);
  EXPECT_LT(one_tensor, bytes) << "the model is too small to show anything";
}

TEST_F(HuggingFace, NothingIsReplacedUnasked) {
  done({"import", kFolders + "gpt2-older", "run"});
  EXPECT_EQ(refused({"import", kFolders + "gpt2-older", "run"}),
            "error: run already holds a run; give --overwrite to replace it, or another folder");
  done({"import", kFolders + "gpt2-older", "run", "--overwrite"});
  done({"export", "run", "out"});
  EXPECT_EQ(refused({"export", "run", "out"}),
            "error: out holds a Hugging Face folder already; give --overwrite to replace it, or another folder");
  done({"export", "run", "out", "--dtype=bf16", "--overwrite"});
  EXPECT_EQ(refused({"export", "run", "run", "--overwrite"}),
            "error: run holds something else than a Hugging Face folder, which is not replaced; name another folder");
  write("out/README.md", "about this model");
  EXPECT_EQ(
      refused({"export", "run", "out", "--overwrite"}),
      "error: --overwrite replaces out as a whole, and README.md in it is not of an export; move that away or name "
      "another folder");
  EXPECT_EQ(read("out/README.md"), "about this model");
  fs::remove(folder() / "out/README.md");
  done({"export", "run", "out", "--overwrite", "--max-shard=20KB"});
  done({"export", "run", "out", "--overwrite"});
  write("notes/todo.txt", "keep me");
  refused({"export", "run", "notes", "--overwrite"});
  EXPECT_EQ(read("notes/todo.txt"), "keep me");
}

// A killed process leaves gigabytes; the next one that exports there takes them away.
TEST_F(HuggingFace, WhatAKilledExportLeftIsRemoved) {
  done({"import", kFolders + "gpt2-older", "run"});
  const std::string own = aside_name("models/out", "export", 0);
  const auto by = [&](int process) {
    const std::string from = fmt::format("-{}-", ::getpid());
    return std::string(own).replace(own.rfind(from), from.size(), fmt::format("-{}-", process));
  };
  constexpr int kNobody = (1 << 30) - 1;  // beyond any process's number
  const std::string kept[] = {own, "models/.out.export-1-0", "models/out-export-1-0"};
  for (const std::string& folder : kept) fs::create_directories(this->folder() / folder);
  fs::create_directories(folder() / by(kNobody));
  write(by(kNobody) + "/model.safetensors", "half");
  done({"export", "run", "models/out"});
  EXPECT_FALSE(exists(by(kNobody)));
  for (const std::string& folder : kept) EXPECT_TRUE(exists(folder)) << folder;
  EXPECT_TRUE(exists("models/out/config.json"));
}

TEST_F(HuggingFace, BadRequests) {
  EXPECT_EQ(refused({"import", "nowhere", "run"}),
            "error: nowhere: not a Hugging Face folder (there is no such folder)");
  EXPECT_EQ(refused({"import", ".", "run"}), "error: .: not a Hugging Face folder (no config.json)");
  EXPECT_EQ(refused({"export", "nowhere", "out"}), "error: nowhere: there is no run in that folder");
  done({"import", kFolders + "gpt2-older", "run"});
  EXPECT_EQ(refused({"export", "run", "out", "--step", "7"}),
            "error: run has no checkpoint of step 7; there is one of 0");
  EXPECT_EQ(refused({"export", "run", "out", "--max-shard", "many"}),
            "error: --max-shard must be a size such as 5GB or 200MiB, got many");
  EXPECT_FALSE(exists("out"));
  copy("llama-bf16-sharded");
  fs::remove(folder() / "llama-bf16-sharded/model-00002-of-00003.safetensors");
  const std::string error = refused(with({"train", "llama-bf16-sharded", "--output.dir=broken"}));
  EXPECT_NE(error.find("model-00002-of-00003.safetensors\", which is not there"), std::string::npos) << error;
  EXPECT_FALSE(exists("broken"));
  EXPECT_NE(refused({"import", "llama-bf16-sharded", "broken"}).find("which is not there"), std::string::npos);
  EXPECT_FALSE(exists("broken"));
}

TEST_F(HuggingFace, FamiliesOfOursAlone) {
  done({"train", "mlp", "--train.steps=1", "--output.dir=mlp", "--train.batch=4"});
  EXPECT_EQ(refused({"export", "mlp", "out"}),
            "error: model.family = \"mlp\" has no counterpart in transformers; gpt2 and llama have");
}

}  // namespace
}  // namespace trireme::testing
