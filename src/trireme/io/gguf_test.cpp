#include "trireme/io/gguf.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/source_dir.h"
#include "trireme/core/error.h"
#include "trireme/io/gguf_names.h"

namespace trireme::io {
namespace {

// What the gguf package makes of the same numbers (tests/gguf/make_blocks.py).
nlohmann::json expected() {
  std::ifstream file(source_dir() + "/tests/gguf/blocks.json");
  return nlohmann::json::parse(file);
}

std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(GgufBlocks, AreThePackages) {
  const nlohmann::json all = expected();
  const auto values = all["values"].get<std::vector<float>>();
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_0}) {
    const std::vector<std::byte> theirs = bytes_of(all[name_of(type)].get<std::string>());
    ASSERT_EQ(theirs.size(), ggml_bytes(type, static_cast<std::int64_t>(values.size())));
    std::vector<std::byte> ours(theirs.size());
    encode_blocks(type, values, ours);
    EXPECT_EQ(ours, theirs) << name_of(type);
  }
  for (const GgmlType type : {GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_k}) {
    const std::vector<std::byte> theirs = bytes_of(all[name_of(type)].get<std::string>());
    const auto read = all[std::string(name_of(type)) + "_values"].get<std::vector<float>>();
    std::vector<float> ours(read.size());
    decode_blocks(type, theirs, ours);
    for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], read[i]) << name_of(type) << " " << i;
  }
}

// A step is the widest range of a block, over the codes that share it.
TEST(GgufBlocks, ComeBackWithinAStep) {
  const auto values = expected()["values"].get<std::vector<float>>();
  for (const auto& [type, codes] :
       {std::pair(GgmlType::q8_0, 127.0F), std::pair(GgmlType::q4_0, 8.0F), std::pair(GgmlType::q4_k, 7.5F)}) {
    std::vector<std::byte> blocks(ggml_bytes(type, static_cast<std::int64_t>(values.size())));
    std::vector<float> back(values.size());
    encode_blocks(type, values, blocks);
    decode_blocks(type, blocks, back);
    const auto block = static_cast<std::size_t>(block_elements(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float largest = 0;
      for (std::size_t e = i / block * block; e < (i / block + 1) * block; ++e)
        largest = std::max(largest, std::abs(values[e]));
      EXPECT_LE(std::abs(values[i] - back[i]), 1.01F * largest / codes) << name_of(type) << " " << i;
    }
  }
}

class GgufFiles : public testing::Test {
 protected:
  GgufFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-gguf-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~GgufFiles() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "model.gguf").string(); }

  void write() const {
    write_gguf(path(),
               {{"general.architecture", std::string("gpt2")},
                {"gpt2.block_count", std::uint32_t{2}},
                {"gpt2.attention.layer_norm_epsilon", 1e-5F},
                {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "Ġb", ""}},
                {"tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 3, 5}},
                {"flag", true}},
               {{"one", {3}, GgmlType::f32}, {"two", {2, 64}, GgmlType::q8_0}, {"three", {5, 7}, GgmlType::f16}},
               [](std::size_t i) {
                 std::vector<float> values(i == 0 ? 3 : i == 1 ? 128 : 35);
                 for (std::size_t e = 0; e < values.size(); ++e) values[e] = static_cast<float>(e) - 2;
                 return values;
               });
  }
  std::string refusal() const {
    try {
      GgufFile file(path());
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::request);
      return e.message();
    }
    return "";
  }
  std::filesystem::path folder_;
};

TEST_F(GgufFiles, GiveBackWhatWasWritten) {
  write();
  const GgufFile file(path());
  EXPECT_EQ(file.text("general.architecture"), "gpt2");
  EXPECT_EQ(file.integer("gpt2.block_count"), 2);
  EXPECT_FLOAT_EQ(static_cast<float>(file.number("gpt2.attention.layer_norm_epsilon")), 1e-5F);
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens"), (std::vector<std::string>{"a", "Ġb", ""}));
  EXPECT_EQ(file.read("one", {3}), (std::vector<float>{-2, -1, 0}));
  const std::vector<float> three = file.read("three", {5, 7});
  for (std::size_t e = 0; e < three.size(); ++e) EXPECT_EQ(three[e], static_cast<float>(e) - 2);
  EXPECT_THROW(file.read("one", {4}), Error);
  EXPECT_THROW(file.read("four", {4}), Error);
  EXPECT_THROW(file.integer("general.architecture"), Error);
  EXPECT_THROW(file.text("nothing"), Error);
}

// However short it is cut, that is said, and nothing beyond its end is read.
TEST_F(GgufFiles, CutShortAreRefused) {
  write();
  std::ifstream in(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (std::size_t size = 0; size + 32 < whole.size(); ++size) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_NE(refusal(), "") << size;
  }
}

// Each tensor has bytes of its own, where the format says.
TEST_F(GgufFiles, TensorsThatOverlapAreRefused) {
  write();
  std::ifstream in(path(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::size_t offset = whole.find("two") + 3 + 4 + 2 * 8 + 4;  // behind name, rank, extents and type
  const auto with = [&](char first) {
    std::string changed = whole;
    changed[offset] = first;
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << changed;
    return refusal();
  };
  EXPECT_EQ(with(whole[offset]), "");
  EXPECT_EQ(with(0), path() + ": 'one' and 'two' overlap");
  EXPECT_EQ(with(64), path() + ": 'two' and 'three' overlap");
  EXPECT_EQ(with(3), path() + ": 'two' begins at byte 3 of the data, which is no multiple of general.alignment = 32");
}

TEST_F(GgufFiles, OtherFilesAreRefused) {
  std::ofstream(path()) << "this is no such file, however long it may be";
  EXPECT_EQ(refusal(), path() + ": not a GGUF file");
}

// Scaling as Llama 3.1 has it: files of others have the factors alone.
TEST_F(GgufFiles, RotaryFactorsAreReadBack) {
  ModelConfig model;
  model.family = "llama";
  model.layers = 1;
  model.width = 128;
  model.heads = model.kv_heads = 1;
  model.head_dim = 128;
  model.ffn = 16;
  model.vocab = 2;
  model.rope_theta = 500000;
  model.rope_scaling = "llama3";
  model.rope_factor = 8;
  model.rope_low = 1;
  model.rope_high = 4;
  model.rope_original = 8192;
  const std::vector<float> factors = rope_factors(model);
  ASSERT_EQ(factors.size(), 64U);
  EXPECT_EQ(factors.front(), 1);
  EXPECT_EQ(factors.back(), 8);
  const auto read_back = [&](std::vector<float> given, bool keys) {
    GgufMetadata metadata = gguf_metadata(model);
    if (!keys) std::erase_if(metadata, [](const auto& entry) { return entry.first.starts_with("trireme."); });
    write_gguf(path(), metadata, {{"token_embd.weight", {2, 128}, GgmlType::f32}, {kRopeFactors, {64}, GgmlType::f32}},
               [&](std::size_t i) { return i == 0 ? std::vector<float>(256) : given; });
    return gguf_model(GgufFile(path())).model;
  };
  for (const bool keys : {true, false}) {
    const ModelConfig back = read_back(factors, keys);
    EXPECT_EQ(back.rope_scaling, "llama3");
    EXPECT_EQ(back.rope_factor, 8);
    EXPECT_EQ(back.rope_low, 1);
    EXPECT_EQ(back.rope_high, 4);
    EXPECT_EQ(back.rope_original, 8192);
  }
  model.rope_original = 4096;
  model.rope_low = 2;
  EXPECT_EQ(read_back(rope_factors(model), true).rope_original, 4096);
  EXPECT_THROW(read_back(rope_factors(model), false), Error);  // no published scaling
}

TEST(GgufNames, HeadsAreInterleavedAndBack) {
  ModelConfig model;
  model.family = "llama";
  model.layers = 1;
  model.width = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 4;
  model.ffn = 16;
  model.vocab = 10;
  const std::vector<GgufParameter> all = gguf_parameters(model);
  const auto q = std::find_if(all.begin(), all.end(), [](const auto& p) { return p.theirs == "blk.0.attn_q.weight"; });
  ASSERT_NE(q, all.end());
  EXPECT_EQ(q->stored, (Shape{8, 8}));
  std::vector<float> rows(64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / 8);
  const std::vector<float> theirs = to_gguf(*q, rows);
  std::vector<float> order;
  for (std::size_t r = 0; r < 8; ++r) order.push_back(theirs[r * 8]);
  EXPECT_EQ(order, (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(from_gguf(*q, theirs), rows);
  const auto v = std::find_if(all.begin(), all.end(), [](const auto& p) { return p.theirs == "blk.0.attn_v.weight"; });
  EXPECT_EQ(v->heads, 0);
}

}  // namespace
}  // namespace trireme::io
