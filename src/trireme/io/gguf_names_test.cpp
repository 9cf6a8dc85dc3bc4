#include "trireme/io/gguf_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trireme/io/hf_test_folder.h"

namespace trireme::io {
namespace {

// A file of a model, which a test spoils before it is written.
class GgufModelTest : public HfFolder {
 protected:
  explicit GgufModelTest(const std::string& family = "llama") {
    model_.family = family;
    model_.layers = 3;
    model_.width = 16;
    model_.heads = 2;
    model_.kv_heads = family == "llama" ? 1 : 2;
    model_.head_dim = 8;
    model_.ffn = 32;
    model_.context = 4;
    model_.vocab = 5;
    model_.tie_embeddings = true;
    metadata_ = gguf_metadata(model_);
    for (const GgufParameter& p : gguf_parameters(model_)) tensors_.push_back({p.theirs, p.stored, GgmlType::f32});
  }

  std::string file() const { return path("model.gguf"); }
  void set(const std::string& key, const GgufValue& value) {
    std::erase_if(metadata_, [&](const auto& entry) { return entry.first == key; });
    metadata_.emplace_back(key, value);
  }
  void write() const {
    write_gguf(file(), metadata_, tensors_, [&](std::size_t i) {
      return std::vector<float>(static_cast<std::size_t>(tensors_[i].shape.elements()));
    });
  }
  // Reads it as an import does.
  ModelConfig read() const {
    write();
    const GgufFile opened(file());
    const GgufModel read = gguf_model(opened);
    notes_ = read.notes;
    gguf_parameters(opened, read.model);
    return read.model;
  }
  // A refusal without the file's name, which it must begin with.
  std::string refused() const {
    const std::string message = refusal([&] { read(); });
    const std::string beginning = file() + ": ";
    EXPECT_TRUE(message.starts_with(beginning)) << message;
    return message.substr(std::min(beginning.size(), message.size()));
  }
  std::string refused_with(const std::string& key, const GgufValue& value) {
    const GgufMetadata before = metadata_;
    set(key, value);
    std::string message = refused();
    metadata_ = before;
    return message;
  }

  ModelConfig model_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  mutable std::vector<std::string> notes_;
};

class Gpt2GgufTest : public GgufModelTest {
 protected:
  Gpt2GgufTest() : GgufModelTest("gpt2") {}
};

TEST_F(GgufModelTest, IsReadBack) {
  const ModelConfig back = read();
  EXPECT_EQ(back.layers, 3);
  EXPECT_EQ(back.kv_heads, 1);
  EXPECT_EQ(back.head_dim, 8);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Gpt2GgufTest, IsReadBack) {
  EXPECT_EQ(read().layers, 3);
  EXPECT_TRUE(notes_.empty());
}

// What is left over would make the import another model.
TEST_F(GgufModelTest, TensorsWithoutAPlaceAreRefusedByName) {
  const std::vector<GgufTensor> whole = tensors_;
  tensors_.push_back({"blk.0.attn_q.bias", {16}, GgmlType::f32});
  EXPECT_EQ(refused(), "\"blk.0.attn_q.bias\" is no part of the llama of 3 layers that the file's metadata describe");
  tensors_ = whole;
  EXPECT_EQ(refused_with("llama.block_count", std::uint32_t{2}),
            "\"blk.2.attn_norm.weight\" is no part of the llama of 2 layers that the file's metadata describe");
  EXPECT_EQ(refused_with("llama.block_count", std::uint32_t{4}), "there is no tensor 'blk.3.attn_norm.weight'");
  tensors_.push_back(tensors_.front());
  EXPECT_EQ(refused(), "the tensor \"token_embd.weight\" is there twice");
  tensors_ = whole;
  metadata_.push_back(metadata_.front());
  EXPECT_EQ(refused(), "the key \"general.architecture\" is there twice");
}

TEST_F(GgufModelTest, ValuesThatAreNoneAreRefusedByKey) {
  constexpr const char* kSize = "an integer from 1 to 2147483647, got ";
  for (const char* key : {"llama.block_count", "llama.embedding_length", "llama.context_length",
                          "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
                          "llama.attention.key_length", "llama.vocab_size"}) {
    EXPECT_EQ(refused_with(key, std::uint32_t{0}), std::string(key) + " must be " + kSize + "0");
    EXPECT_EQ(refused_with(key, std::uint32_t{0xffffffff}), std::string(key) + " must be " + kSize + "4294967295");
    EXPECT_EQ(refused_with(key, std::int32_t{-1}), std::string(key) + " must be " + kSize + "-1");
    EXPECT_EQ(refused_with(key, 1.5F), std::string(key) + " must be " + kSize + "1.5");
  }
  EXPECT_EQ(refused_with("llama.attention.head_count", std::vector<std::int64_t>{2, 2, 2}),
            "llama.attention.head_count must be an integer from 1 to 2147483647, got [2,2,2]");
  for (const char* key :
       {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base", "llama.rope.scaling.factor"}) {
    EXPECT_EQ(refused_with(key, -1.0F), std::string(key) + " must be a positive number, got -1.0");
    EXPECT_EQ(refused_with(key, std::numeric_limits<float>::quiet_NaN()),
              std::string(key) + " must be a positive number, got nan");
    EXPECT_EQ(refused_with(key, std::numeric_limits<float>::infinity()),
              std::string(key) + " must be a positive number, got inf");
  }
}

TEST_F(GgufModelTest, SizesThatDoNotGoTogetherAreRefusedByKey) {
  EXPECT_EQ(refused_with("llama.attention.head_count_kv", std::uint32_t{3}),
            "llama.attention.head_count_kv = 3: does not divide the 2 heads");
  EXPECT_EQ(refused_with("llama.vocab_size", std::uint32_t{6}),
            "llama.vocab_size = 6: contradicts token_embd.weight, which has 5 rows");
  EXPECT_EQ(refused_with("llama.block_count", std::uint32_t{0x7fffffff}),
            "llama.block_count = 2147483647: more layers than the 10000 of any model");
  EXPECT_EQ(refused_with("llama.block_count", std::uint32_t{10000}),
            "llama.block_count = 10000, but there are 29 tensors in all");
  EXPECT_EQ(refused_with("llama.feed_forward_length", std::uint32_t{33}),
            "'blk.0.ffn_gate.weight' is [32,16], but the file's metadata make it [33,16]");
}

TEST_F(GgufModelTest, WhatIsNotComputedIsRefusedByKey) {
  EXPECT_EQ(refused_with("llama.rope.dimension_count", std::uint32_t{4}),
            "llama.rope.dimension_count = 4: not computed by this version (only 8 is)");
  EXPECT_EQ(refused_with("llama.attention.value_length", std::uint32_t{4}),
            "llama.attention.value_length = 4: not computed by this version (only 8 is)");
  EXPECT_EQ(refused_with("llama.rope.scaling.type", std::string("yarn")),
            "llama.rope.scaling.type = \"yarn\": none and linear can be imported");
  EXPECT_EQ(refused_with("llama.rope.scaling.type", std::string("linear")),
            "llama.rope.scaling.type = \"linear\": needs rope.scaling.factor");
  EXPECT_EQ(refused_with("llama.expert_count", std::uint32_t{8}),
            "llama.expert_count = 8: not computed by this version (only 0 is)");
  EXPECT_EQ(refused_with("llama.attention.causal", false),
            "llama.attention.causal = false: not computed by this version (only true is)");
}

TEST_F(GgufModelTest, OtherKeysAreNoted) {
  set("llama.wings", std::uint32_t{2});
  read();
  EXPECT_EQ(notes_, std::vector<std::string>{"the file has \"llama.wings\", which has no effect here"});
}

TEST_F(Gpt2GgufTest, HeadsDivideTheWidth) {
  EXPECT_EQ(refused_with("gpt2.attention.head_count", std::uint32_t{3}),
            "gpt2.embedding_length = 16: not a multiple of the 3 heads");
  EXPECT_EQ(refused_with("gpt2.attention.head_count", std::uint32_t{0}),
            "gpt2.attention.head_count must be an integer from 1 to 2147483647, got 0");
  EXPECT_EQ(refused_with("gpt2.attention.head_count_kv", std::uint32_t{1}),
            "gpt2.attention.head_count_kv = 1: not computed by this version (only 2 is)");
}

}  // namespace
}  // namespace trireme::io
