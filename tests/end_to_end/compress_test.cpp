// Smaller models as a person makes them: weights in few bits, GGUF files.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "end_to_end/program.h"
#include "support/source_dir.h"
#include "trireme/core/text.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/io/safetensors.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFolders = source_dir() + "/tests/huggingface/";

class Compress : public Program {
 protected:
  static constexpr int kContext = 32;
  // A model of 64 features, trained on words of which each but every tenth follows from the one before.
  void train(const std::vector<std::string>& more = {}) const {
    std::string text;
    unsigned state = 1, word = 0;
    for (int i = 0; i < 6000; ++i) {
      constexpr const char* kWords[] = {"oar ", "hull ", "stern ", "keel ", "bow\n", "the ", "rows ", "of "};
      state = state * 1103515245 + 12345;
      word = (state >> 20) % 10 == 0 ? (state >> 16) % 8 : (3 * word + 1) % 8;
      text += kWords[word];
    }
    write("ships.txt", text);
    std::vector<std::string> words = {"train",
                                      "tiny.toml",
                                      "--output.dir=run",
                                      "--data.text=ships.txt",
                                      "--model.width=64",
                                      "--model.layers=2",
                                      "--train.steps=100",
                                      "--train.lr=3e-3",
                                      "--train.batch=8",
                                      "--model.context=" + std::to_string(kContext)};
    words.insert(words.end(), more.begin(), more.end());
    done(words);
  }
  double loss(const std::string& run) const {
    return nlohmann::json::parse(done({"eval", "--from", run, "--json"}).out)["loss"].get<double>();
  }
  std::string continued(const std::string& run) const {
    return done(
               {"generate", "--from", run, "--prompt-tokens", "116,104,101,32", "--tokens", "24", "--temperature", "0"})
        .out;
  }
  std::string compress(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"compress", "run", "--out", out, "--decode", "0"};
    words.insert(words.end(), more.begin(), more.end());
    return done(words).out;
  }
  // Bytes of all that is saved.
  std::size_t stored(const std::string& run, std::int64_t step = 0) const {
    const io::CheckpointReader checkpoint(folder() / run / "checkpoints" / step_name(step));
    std::size_t bytes = 0;
    for (const io::CheckpointTensor& tensor : checkpoint.tensors()) bytes += tensor.type.bytes();
    return bytes;
  }
};

TEST_F(Compress, EightBitsAreWithinHalfAPercent) {
  train();
  compress("small", {"--weights", "int8"});
  EXPECT_LT(std::abs(std::exp(loss("small") - loss("run")) - 1), 0.005);
  EXPECT_EQ(std::ranges::count(continued("small"), ','), 23);
  const io::CheckpointReader checkpoint(folder() / "small" / "checkpoints" / step_name(0));
  EXPECT_EQ(checkpoint.at("blocks.0.mlp.up.weight/codes").type, (TensorType{DType::i8, {256, 64}}));
  EXPECT_EQ(checkpoint.at("wte.weight/scale").type, (TensorType{DType::f32, {256, 1}}));
  EXPECT_EQ(checkpoint.find("blocks.0.mlp.up.weight"), nullptr);
}

// Weights, what they are multiplied by, and the keys and values of earlier tokens.
TEST_F(Compress, IntegersThroughoutAreWithinAPercent) {
  train();
  const std::string said =
      compress("integers", {"--weights", "int8", "--activations", "int8", "--kv-cache", "int8", "--calibrate", "64"});
  EXPECT_LT(std::abs(std::exp(loss("integers") - loss("run")) - 1), 0.01);
  EXPECT_NE(said.find("of keys and values for 32 tokens"), std::string::npos) << said;
  const io::CheckpointReader checkpoint(folder() / "integers" / "checkpoints" / step_name(0));
  EXPECT_EQ(checkpoint.at("blocks.0.mlp.up.weight/input").type, (TensorType{DType::f32, {}}));
  EXPECT_EQ(checkpoint.find("wte.weight/input"), nullptr);  // the output layer reads what is there
  EXPECT_EQ(std::ranges::count(continued("integers"), ','), 23);
  // Ranges are no part of the weights: without them the codes are those of int8 alone, and so is the export.
  compress("small", {"--weights", "int8"});
  EXPECT_NE(loss("integers"), loss("small"));
  done({"export", "integers", "folder"});
  // The memory plan has the caches' bytes: 2 layers, keys and values, 4 bytes or one and a scale for 16.
  const auto bytes = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"bench",    "generate", "--from",    "run", "--prompt", "4",
                                      "--tokens", "28",       "--repeats", "1",   "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return nlohmann::json::parse(done(words).out)["peak_bytes"].get<std::int64_t>();
  };
  EXPECT_LT(bytes({"--memory.kv_cache=int8"}), bytes({}));
  EXPECT_NE(done({"eval", "--from", "run", "--memory.kv_cache=int8"}).err.find("it is for generation"),
            std::string::npos);
  EXPECT_NE(refused({"eval", "--from", "small", "--memory.linear_inputs=int8"}).find("memory.linear_inputs"),
            std::string::npos);
}

// How the loss follows is for a model that has learned more: bench/few_bits.py.
TEST_F(Compress, FourBitsAreSmallerAndCompensationHelps) {
  train();
  const double exact = loss("run");
  compress("small", {"--weights", "int8"});
  compress("nearest", {"--weights", "int4", "--calibrate", "0"});
  for (const std::string weights : {"int4", "int4:64"}) {
    const std::string said = compress(weights, {"--weights", weights, "--calibrate", "64"});
    const std::regex errors(R"(8 layers compensated: mean relative error ([0-9.]+)%, rounded to nearest ([0-9.]+)%)");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(said, found, errors)) << said;
    EXPECT_LT(std::stod(found[1]), std::stod(found[2]) * 2 / 3) << said;
    EXPECT_LT(std::abs(loss(weights) - exact), 0.02);
  }
  EXPECT_LT(std::abs(loss("nearest") - exact), 0.1);
  EXPECT_EQ(stored("nearest"), stored("int4"));
  EXPECT_LT(stored("int4"), stored("small") * 7 / 10);
}

TEST_F(Compress, BitsByName) {
  train();
  compress("mixed", {"--weights", "int4", "--bits", "blocks.0.*=8", "*.down.weight=4:64", "wte.*=full"});
  const io::CheckpointReader checkpoint(folder() / "mixed" / "checkpoints" / step_name(0));
  EXPECT_EQ(checkpoint.at("blocks.0.attn.qkv.weight/codes").type.dtype, DType::i8);
  EXPECT_EQ(checkpoint.at("blocks.1.attn.qkv.weight/codes").type, (TensorType{DType::u8, {192, 32}}));
  EXPECT_EQ(checkpoint.at("blocks.1.mlp.down.weight/scale").type, (TensorType{DType::f32, {64, 4}}));
  EXPECT_EQ(checkpoint.at("wte.weight").type, (TensorType{DType::f32, {256, 64}}));
  EXPECT_LT(std::abs(loss("mixed") - loss("run")), 0.2);
}

TEST_F(Compress, SaysWhatItDid) {
  train();
  const Finished f =
      done({"compress", "run", "--out", "small", "--weights", "int8", "--decode", "4", "--batches", "1"});
  for (const char* part :
       {"weights ", "before ", "after ", "change ", "perplexity", "tokens/s", "smaller", "run     small"})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << "\n" << f.out;
}

// What is exported is what the codes stand for, so an import of it gives the same loss.
TEST_F(Compress, IsExportedAsWhatItStandsFor) {
  train();
  compress("small", {"--weights", "int4:32", "--calibrate", "0"});
  done({"export", "small", "folder"});
  done({"import", "folder", "back"});
  const auto of = [&](const std::string& run) {
    return nlohmann::json::parse(
               done({"eval", "--from", run, "--json", "--data.text=ships.txt", "--data.tokenizer=bytes"}).out)["loss"]
        .get<double>();
  };
  EXPECT_NEAR(of("back"), of("small"), 1e-5);
  EXPECT_EQ(continued("back"), continued("small"));
}

// One rank makes it smaller, whatever ranks have trained it.
TEST_F(Compress, RunsOfAnyMesh) {
  for (const std::vector<std::string>& mesh : {std::vector<std::string>{"--parallel.mesh=pp=2", "--model.layers=2"},
                                               {"--parallel.mesh=dp=2", "--parallel.zero=3"}}) {
    std::vector<std::string> words = {"--train.steps=1", "--overwrite"};
    words.insert(words.end(), mesh.begin(), mesh.end());
    train(words);
    done({"compress", "run", "--out", "small", "--weights", "int8", "--overwrite"});
    done({"eval", "--from", "small"});
  }
}

TEST_F(Compress, ItsSourceIsNotOverwritten) {
  train({"--train.steps=1"});
  EXPECT_NE(refused({"compress", "run", "--out", "./run", "--weights", "int8", "--overwrite"}).find("--out"),
            std::string::npos);
  done({"eval", "--from", "run"});
}

TEST_F(Compress, BadRequestsAreRefusedBeforeWork) {
  train({"--train.steps=1"});
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"compress", "run", "--out", "small"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string line = refused(words);
    EXPECT_FALSE(exists("small")) << line;
    return line;
  };
  const auto has = [](const std::string& line, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  };
  has(said({}), {"--weights"});
  has(said({"--prune", "heads:0.01"}), {"--prune heads:0.01", "takes out nothing", "larger"});
  has(said({"--prune", "blocks:0.01"}), {"--prune blocks:0.01", "takes out nothing"});
  has(said({"--weights", "int3"}), {"memory.weights", "int3", "int4"});
  has(said({"--weights", "int8", "--activations", "int4"}), {"memory.linear_inputs", "int4", "int8"});
  has(said({"--weights", "int8", "--activations", "int8", "--calibrate", "0"}), {"--activations", "--calibrate"});
  has(said({"--activations", "int8"}), {"--activations", "--weights"});
  has(said({"--kv-cache", "fp8"}), {"memory.kv_cache", "fp8", "int8"});
  has(said({"--weights", "int4:48"}), {"memory.weights", "int4:48", "32"});
  has(said({"--weights", "int8:48"}), {"groups of 48 do not divide rows of 64", "memory.weights"});
  has(said({"--weights", "int4", "--bits", "blocks.9.*=8"}), {"memory.weight_bits", "blocks.9.*"});
  has(said({"--weights", "int4", "--bits", "blocks.0.*=7"}), {"memory.weight_bits", "blocks.0.*=7"});
  has(refused({"compress", "missing", "--out", "small", "--weights", "int8"}), {"missing"});
  has(refused({"compress", "run", "--out", "run", "--weights", "int8"}), {"--out run", "another folder"});
  compress("small", {"--weights", "int8"});
  has(refused({"compress", "small", "--out", "twice", "--weights", "int4"}), {"memory.weights", "quantized already"});
  has(refused({"train", "small", "--resume", "--train.steps=3"}), {"memory.weights", "train.quantize"});
  has(refused({"train", "tiny.toml", "--memory.weight_bits=blocks.0.*=8"}), {"memory.weight_bits", "memory.weights"});
  has(refused({"train", "tiny.toml", "--memory.linear_inputs=int8"}), {"memory.linear_inputs", "memory.weights"});
  has(refused({"train", "tiny.toml", "--memory.kv_cache=int8"}), {"memory.kv_cache", "generate"});
}

// What a run that trains for four bits evaluates is what is stored afterwards.
TEST_F(Compress, TrainingForFourBitsEvaluatesWhatIsStored) {
  train({"--train.quantize=int4"});
  compress("small", {"--weights", "int4", "--calibrate", "0"});
  const std::vector<nlohmann::json> lines = metrics("run");
  const auto last =
      std::find_if(lines.rbegin(), lines.rend(), [](const auto& line) { return line.contains("eval_loss"); });
  ASSERT_NE(last, lines.rend());
  EXPECT_NEAR(loss("small"), (*last)["eval_loss"].get<double>(), 1e-5);
  EXPECT_GT(std::abs(loss("run") - loss("small")), 1e-6);
}

class Gguf : public Compress {
 protected:
  static std::string numbers(const std::string& folder, const std::string& tensor) {
    const io::SafetensorsFile file(kFolders + folder + "/expected.safetensors");
    const auto bytes = file.bytes(file.at(tensor));
    std::vector<std::int32_t> values(bytes.size() / sizeof(std::int32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return fmt::format("{}", fmt::join(values, ","));
  }
};

// Families, tied and not: to a file and back, to the bit; their own library's greedy tokens follow.
TEST_F(Gguf, ToAFileAndBack) {
  for (const std::string name : {"gpt2-tied", "gpt2-untied-f16", "llama-grouped", "llama3-tied"}) {
    done({"import", kFolders + name, name});
    done({"export", name, name + ".gguf", "--type", "f32"});
    done({"import", name + ".gguf", name + "-back"});
    EXPECT_EQ(state(name + "-back", 0), state(name, 0)) << name;
    const Finished f = done({"generate", "--from", name + "-back", "--prompt-tokens", numbers(name, "prompt"),
                             "--tokens", "32", "--temperature", "0"});
    EXPECT_EQ(f.out, numbers(name, "greedy") + "\n") << name;
  }
}

// Rows of a small model are no whole blocks: the file is not of the type that was asked for, and says so.
TEST_F(Gguf, SaysWhichTensorsHaveAnotherType) {
  done({"train", "tiny.toml", "--output.dir=small"});
  const std::string four = done({"export", "small", "four.gguf", "--type", "q4_0"}).out;
  expect_parts(
      four, {"as q4_0 where that can be: ", fmt::format("({} B)", format_count(fs::file_size(folder() / "four.gguf"))),
             "q4_0  576 B of blk.*.ffn_down.weight\n",
             "f16   12.0 KiB of token_embd.weight, blk.*.attn_qkv.weight, blk.*.attn_output.weight, "
             "blk.*.ffn_up.weight: rows of 16 are no whole blocks of 32\n"});
  const std::string k = done({"export", "small", "k.gguf", "--type", "q4_k"}).out;
  expect_parts(k, {"q4_k  0 B of no matrix\n",
                   "q4_0  576 B of blk.*.ffn_down.weight: rows of 64 are no whole blocks of "
                   "256\n"});
  expect_none(done({"export", "small", "half.gguf", "--type", "f16"}).out, "where that can be");
}

TEST_F(Gguf, EightBitsAreWithinAThousandth) {
  train();
  for (const std::string type : {"q8_0", "q4_0", "q4_k", "f16"}) {
    done({"export", "run", type + ".gguf", "--type", type});
    done({"import", type + ".gguf", type, "--data.text=ships.txt"});
    EXPECT_EQ(std::ranges::count(continued(type), ','), 23);
  }
  EXPECT_LT(std::abs(std::exp(loss("q8_0") - loss("run")) - 1), 0.001);
  EXPECT_LT(std::abs(std::exp(loss("f16") - loss("run")) - 1), 0.0001);
  EXPECT_LT(fs::file_size(folder() / "q4_0.gguf"), fs::file_size(folder() / "q8_0.gguf"));
}

// The gguf package reads the same numbers as we do, where it is installed.
TEST_F(Gguf, ThePackageReadsTheSame) {
  const std::string check = source_dir() + "/tests/gguf/check_file.py ";
  train();
  train({"--output.dir=grouped", "--model.family=llama", "--model.heads=4", "--model.kv_heads=2", "--model.ffn=256",
         "--train.steps=10"});
  done({"import", kFolders + "llama-grouped", "llama"});
  // Of q4_k only the rows of 256 are, and the others q4_0.
  const std::vector<std::pair<std::string, std::string>> files = {
      {"run", "q8_0"},     {"run", "q4_0"},     {"run", "q4_k"},    {"llama", "f16"},
      {"grouped", "q8_0"}, {"grouped", "q4_0"}, {"grouped", "q4_k"}};
  for (const auto& [run, type] : files) {
    done({"export", run, "x.gguf", "--type", type, "--overwrite"});
    done({"import", "x.gguf", "x", "--overwrite"});
    done({"export", "x", "x-folder", "--overwrite"});
    const int status =
        std::system(("cd " + folder().string() + " && python3 " + check + "x.gguf x-folder > said.txt 2>&1").c_str());
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the gguf package is not installed";
    EXPECT_EQ(status, 0) << read("said.txt");
  }
}

TEST_F(Gguf, BadFilesAreRefused) {
  write("bad.gguf", "GGUF but not really, and long enough to be looked at");
  const auto has = [](const std::string& line, const std::string& part) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  };
  has(refused({"import", "bad.gguf", "x"}), "bad.gguf");
  has(refused({"import", "missing.gguf", "x"}), "missing.gguf");
  done({"import", kFolders + "gpt2-tied", "run"});
  has(refused({"export", "run", "x.gguf", "--type", "q2_k"}), "--type");
  done({"export", "run", "x.gguf"});
  has(refused({"export", "run", "x.gguf"}), "--overwrite");
  has(refused({"import", "x.gguf", "y", "--model.width=32"}), "model.width");
  has(refused({"export", "run", "folder", "--type", "q8_0"}), "--type");
}

}  // namespace
}  // namespace trireme::testing
