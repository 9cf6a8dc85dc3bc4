#include "trireme/io/hf_weights.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>

#include "trireme/io/hf_config.h"
#include "trireme/io/hf_test_folder.h"

namespace trireme::io {
namespace {

class HfWeightsTest : public HfFolder {
 protected:
  // What opening the folder's weights refuses, without the file's name.
  std::string refused(const std::string& file = "model.safetensors") const {
    std::string message = refusal([&] { const HfWeights weights(folder_, read_hf_config(folder_).model); });
    const std::string begin = path(file) + ": ";
    EXPECT_TRUE(message.starts_with(begin)) << message;
    return message.substr(std::min(begin.size(), message.size()));
  }

  // The weights as they are, for a test to change and write back.
  struct Tensors {
    std::map<std::string, std::pair<TensorType, std::vector<std::byte>>> all;
  };
  Tensors load(const std::string& name = "model.safetensors") const {
    const SafetensorsFile file(path(name));
    Tensors tensors;
    for (const auto& t : file.tensors()) {
      const auto bytes = file.bytes(t);
      tensors.all[t.name] = {t.type, {bytes.begin(), bytes.end()}};
    }
    return tensors;
  }
  void store(const Tensors& tensors, const std::string& name = "model.safetensors") const {
    std::vector<TensorToWrite> list;
    for (const auto& [key, value] : tensors.all) list.push_back({key, value.first, value.second});
    write_safetensors(path(name), list);
  }
  void change_index(const std::function<void(nlohmann::json&)>& change) const {
    nlohmann::json index = nlohmann::json::parse(get(kIndex));
    change(index["weight_map"]);
    put(kIndex, index.dump());
  }

  static constexpr const char* kIndex = "model.safetensors.index.json";
};

TEST_F(HfWeightsTest, MissingTensors) {
  copy("gpt2-tied");
  Tensors tensors = load();
  tensors.all.erase("transformer.h.1.mlp.c_fc.weight");
  store(tensors);
  EXPECT_EQ(refused(), "1 of the model's 28 tensors is missing: transformer.h.1.mlp.c_fc.weight");
  tensors.all.erase("transformer.ln_f.bias");
  store(tensors);
  EXPECT_EQ(refused(), "2 of the model's 28 tensors are missing: transformer.h.1.mlp.c_fc.weight, …");
}

TEST_F(HfWeightsTest, WrongShapes) {
  copy("gpt2-tied");
  Tensors tensors = load();
  auto& up = tensors.all["transformer.h.0.mlp.c_fc.weight"];
  std::swap(up.first.shape[0], up.first.shape[1]);
  store(tensors);
  EXPECT_EQ(refused(), "transformer.h.0.mlp.c_fc.weight has the shape [96,24], but config.json makes it [24,96]");
}

TEST_F(HfWeightsTest, WrongTypes) {
  copy("gpt2-tied");
  Tensors tensors = load();
  tensors.all["transformer.ln_f.bias"] = {{DType::i32, {24}}, std::vector<std::byte>(24 * 4)};
  store(tensors);
  EXPECT_EQ(refused(), "transformer.ln_f.bias is I32; weights must be F32, F16 or BF16");
}

TEST_F(HfWeightsTest, TensorsOfNoPart) {
  copy("llama-grouped");
  Tensors tensors = load();
  tensors.all["model.layers.0.self_attn.q_proj.bias"] = {{DType::f32, {32}}, std::vector<std::byte>(32 * 4)};
  store(tensors);
  EXPECT_EQ(refused(),
            "\"model.layers.0.self_attn.q_proj.bias\" is no part of the llama of 2 layers that config.json describes");
}

TEST_F(HfWeightsTest, BuffersAndTiedHeadsAreNoTrouble) {
  copy("llama3-tied");
  Tensors tensors = load();
  tensors.all["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{DType::f32, {4}}, std::vector<std::byte>(16)};
  tensors.all["model.rotary_emb.inv_freq"] = {{DType::f32, {4}}, std::vector<std::byte>(16)};
  tensors.all["lm_head.weight"] = tensors.all["model.embed_tokens.weight"];
  store(tensors);
  const HfWeights weights(folder_, read_hf_config(folder_).model);
  tensors.all["lm_head.weight"].second[5] ^= std::byte{1};
  store(tensors);
  EXPECT_EQ(refused(),
            "lm_head.weight differs from model.embed_tokens.weight, but config.json has tie_word_embeddings = true");
}

TEST_F(HfWeightsTest, NamesWithAndWithoutThePrefix) {
  copy("llama-grouped");
  const Tensors tensors = load();
  Tensors bare;
  for (const auto& [name, value] : tensors.all) bare.all[name.starts_with("model.") ? name.substr(6) : name] = value;
  store(bare);
  const ModelConfig model = read_hf_config(folder_).model;
  const HfWeights weights(folder_, model);
  std::vector<float> norm(24);
  weights.read("norm.weight", {24}, norm);
  const auto bytes = std::as_bytes(std::span<const float>(norm));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensors.all.at("model.norm.weight").second.begin()));
}

// Conv1D's [in, out] becomes [out, in]; values of 16 bits are the same numbers in 32.
TEST_F(HfWeightsTest, ReadsInOurLayout) {
  copy("gpt2-untied-f16");
  const Tensors tensors = load();
  const HfWeights weights(folder_, read_hf_config(folder_).model);
  std::vector<float> qkv(3 * 24 * 24);
  weights.read("blocks.1.attn.qkv.weight", {3, 3, 8, 24}, qkv);
  const auto& stored = tensors.all.at("transformer.h.1.attn.c_attn.weight").second;
  for (std::size_t out = 0; out < 72; ++out)
    for (std::size_t in = 0; in < 24; ++in) {
      Float16 value;
      std::memcpy(&value, stored.data() + 2 * (in * 72 + out), 2);
      ASSERT_EQ(qkv[out * 24 + in], static_cast<float>(value));
    }
  // Fewer positions: the first ones.
  std::vector<float> few(std::size_t{7} * 24);
  std::vector<float> all(std::size_t{48} * 24);
  weights.read("wpe.weight", {7, 24}, few);
  weights.read("wpe.weight", {48, 24}, all);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
  EXPECT_THROW(weights.read("wpe.weight", {49, 24}, all), Error);
  EXPECT_THROW(weights.read("blocks.1.attn.qkv.weight", {2, 3, 8, 24}, std::span(qkv).first(1152)), Error);
}

TEST_F(HfWeightsTest, CutShort) {
  copy("llama-bf16-sharded");
  const std::string name = "model-00001-of-00003.safetensors";
  ASSERT_FALSE(get(name).empty());
  const std::string whole = get(name);
  put(name, whole.substr(0, whole.size() - 2));
  EXPECT_NE(refused(name).find("do not lie in the"), std::string::npos);
  put(name, whole.substr(0, 100));
  EXPECT_NE(refused(name).find("the file is cut short"), std::string::npos);
}

TEST_F(HfWeightsTest, IndexesThatLeadElsewhere) {
  copy("llama-bf16-sharded");
  for (const std::string file : {"../x.safetensors", "/etc/x.safetensors", "..\\x.safetensors", "a/b.safetensors"}) {
    copy("llama-bf16-sharded");
    change_index([&](nlohmann::json& map) { map["model.norm.weight"] = file; });
    EXPECT_EQ(refused(kIndex),
              "weight_map names " + nlohmann::json(file).dump() + ", which is not a file of this folder");
  }
  change_index([&](nlohmann::json& map) { map["model.norm.weight"] = "pytorch_model.bin"; });
  EXPECT_EQ(refused(kIndex), "weight_map names \"pytorch_model.bin\", which is not a .safetensors file");
  copy("llama-bf16-sharded");
  change_index([&](nlohmann::json& map) { map["model.norm.weight"] = "model-4.safetensors"; });
  EXPECT_EQ(refused(kIndex), "weight_map names \"model-4.safetensors\", which is not there");
}

TEST_F(HfWeightsTest, IndexesThatAreWrong) {
  copy("llama-bf16-sharded");
  std::string home;
  change_index([&](nlohmann::json& map) {
    home = map["model.norm.weight"];
    map.erase("model.norm.weight");
  });
  EXPECT_EQ(refused(kIndex), home + " holds \"model.norm.weight\", which weight_map does not list");
  copy("llama-bf16-sharded");
  std::string other;
  change_index([&](nlohmann::json& map) {
    for (const auto& [name, file] : map.items())
      if (file != home) other = file;
    map["model.norm.weight"] = other;
  });
  EXPECT_EQ(refused(kIndex), "weight_map says that " + other + " holds \"model.norm.weight\", but it does not");
  // A second copy of a tensor in another file.
  copy("llama-bf16-sharded");
  Tensors tensors = load(other);
  tensors.all["model.norm.weight"] = load(home).all["model.norm.weight"];
  store(tensors, other);
  EXPECT_EQ(refused(kIndex), other + " holds \"model.norm.weight\", which weight_map says is in " + home);
  put(kIndex, R"({"weight_map":[]})");
  EXPECT_EQ(refused(kIndex), "weight_map must be an object of tensor names and files");
  put(kIndex, R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})");
  EXPECT_EQ(refused(kIndex), "the key \"a\" appears twice");
}

TEST_F(HfWeightsTest, NoWeights) {
  copy("gpt2-tied");
  std::filesystem::remove(path("model.safetensors"));
  const auto open = [&] { const HfWeights weights(folder_, read_hf_config(folder_).model); };
  EXPECT_EQ(refusal(open), folder_ + " has neither model.safetensors nor model.safetensors.index.json");
  put("pytorch_model.bin", "");
  EXPECT_EQ(refusal(open), folder_ +
                               " has neither model.safetensors nor model.safetensors.index.json; "
                               "pytorch_model.bin can hold code and is not read: save the model with safetensors");
}

// Names are made for as many layers as there can be, whatever config.json claims.
TEST_F(HfWeightsTest, MoreLayersThanTensorsAreRefusedAtOnce) {
  copy("gpt2-tied");
  ModelConfig model = read_hf_config(folder_).model;
  model.layers = 1'000'000'000;
  EXPECT_NE(refusal([&] { HfWeights(folder_, model); }).find("config.json describes 1000000000 layers"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::io
