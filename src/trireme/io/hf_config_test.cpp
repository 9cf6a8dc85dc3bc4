#include "trireme/io/hf_config.h"

#include "trireme/io/hf_test_folder.h"

namespace trireme::io {
namespace {

class HfConfigTest : public HfFolder {
 protected:
  HfConfig read(const std::string& text) const {
    put("config.json", text);
    return read_hf_config(folder_);
  }
  ModelConfig model(const std::string& text) const { return read(text).model; }
  // A refusal without the file's name, which it must begin with.
  std::string refused(const std::string& text) const {
    std::string message = refusal([&] { read(text); });
    const std::string file = path("config.json") + ": ";
    EXPECT_TRUE(message.starts_with(file)) << message;
    return message.substr(std::min(file.size(), message.size()));
  }
  static std::string gpt2(const std::string& more) { return R"({"model_type":"gpt2")" + more + "}"; }
  static std::string llama(const std::string& more) { return R"({"model_type":"llama")" + more + "}"; }
};

TEST_F(HfConfigTest, AbsentKeysHaveTheirDefaults) {
  const ModelConfig g = model(gpt2(""));
  EXPECT_EQ(g.family, "gpt2");
  EXPECT_EQ(g.width, 768);
  EXPECT_EQ(g.layers, 12);
  EXPECT_EQ(g.heads, 12);
  EXPECT_EQ(g.context, 1024);
  EXPECT_EQ(g.vocab, 50257);
  EXPECT_EQ(g.ffn, 3072);
  EXPECT_EQ(g.norm_eps, 1e-5);
  EXPECT_EQ(g.tie_embeddings, true);
  const ModelConfig l = model(llama(""));
  EXPECT_EQ(l.width, 4096);
  EXPECT_EQ(l.kv_heads, 32);
  EXPECT_EQ(l.head_dim, 128);
  EXPECT_EQ(l.ffn, 11008);
  EXPECT_EQ(l.context, 2048);
  EXPECT_EQ(l.norm_eps, 1e-6);
  EXPECT_EQ(l.rope_theta, 10000);
  EXPECT_EQ(l.tie_embeddings, false);
}

TEST_F(HfConfigTest, SpellingsOfGpt2) {
  const ModelConfig names = model(gpt2(R"(,"n_embd":24,"n_layer":3,"n_head":2,"n_positions":32,"n_ctx":32)"));
  EXPECT_EQ(model(gpt2(R"(,"hidden_size":24,"num_hidden_layers":3,"num_attention_heads":2,
                           "max_position_embeddings":32,"n_inner":null)")),
            names);
  EXPECT_EQ(model(R"({"architectures":["GPT2LMHeadModel"],"n_embd":24,"n_layer":3,"n_head":2,"n_positions":32})"),
            names);
  EXPECT_EQ(refused(gpt2(R"(,"n_positions":32,"n_ctx":64)")), "n_positions = 32 and n_ctx = 64 contradict each other");
}

TEST_F(HfConfigTest, SpellingsOfRotaryScaling) {
  const std::string numbers = R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)";
  const ModelConfig newer = model(llama(R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":500000.0,
      "original_max_position_embeddings":64,)" +
                                        numbers + "}"));
  EXPECT_EQ(newer.rope_scaling, "llama3");
  EXPECT_EQ(newer.rope_theta, 500000);
  EXPECT_EQ(newer.rope_factor, 8);
  EXPECT_EQ(newer.rope_original, 64);
  for (const char* spelling : {"type", "rope_type"})
    EXPECT_EQ(model(llama(R"(,"rope_theta":500000,"rope_scaling":{"original_max_position_embeddings":64,")" +
                          std::string(spelling) + R"(":"llama3",)" + numbers + "}")),
              newer);
  // As in transformers 5, what is left out is max_position_embeddings.
  EXPECT_EQ(model(llama(R"(,"rope_scaling":{"type":"llama3",)" + numbers + "}")).rope_original, 2048);
  const ModelConfig linear = model(llama(R"(,"rope_scaling":{"type":"linear","factor":2})"));
  EXPECT_EQ(linear.rope_scaling, "linear");
  EXPECT_EQ(linear.rope_factor, 2);
  EXPECT_EQ(model(llama(R"(,"rope_scaling":{"rope_type":"default","factor":2})")), model(llama("")));
  EXPECT_EQ(model(llama(R"(,"rope_scaling":null)")), model(llama("")));
}

TEST_F(HfConfigTest, WhatIsNotComputedIsRefusedByKey) {
  EXPECT_EQ(refused(llama(R"(,"attention_bias":true)")),
            "attention_bias = true: not computed by this version (only false is)");
  EXPECT_EQ(refused(llama(R"(,"mlp_bias":true)")), "mlp_bias = true: not computed by this version (only false is)");
  EXPECT_EQ(refused(llama(R"(,"hidden_act":"gelu")")),
            "hidden_act = \"gelu\": not computed by this version (only silu is)");
  EXPECT_EQ(refused(llama(R"(,"rope_scaling":{"type":"dynamic","factor":2.0})")),
            "rope_scaling.type = \"dynamic\": not computed by this version (default, linear and llama3 are)");
  EXPECT_EQ(refused(llama(R"(,"rope_parameters":{"rope_type":"yarn","factor":2.0})")),
            "rope_parameters.rope_type = \"yarn\": not computed by this version (default, linear and llama3 are)");
  EXPECT_EQ(refused(llama(R"(,"rope_parameters":{"partial_rotary_factor":0.5})")),
            "rope_parameters.partial_rotary_factor = 0.5: not computed by this version (only 1 is)");
  EXPECT_EQ(refused(llama(R"(,"partial_rotary_factor":0.5)")),
            "partial_rotary_factor = 0.5: not computed by this version (only 1 is)");
  EXPECT_EQ(refused(gpt2(R"(,"activation_function":"relu")")),
            "activation_function = \"relu\": not computed by this version (only gelu_new, gelu_pytorch_tanh, "
            "gelu_python_tanh, gelu_fast are)");
  EXPECT_EQ(refused(gpt2(R"(,"scale_attn_weights":false)")),
            "scale_attn_weights = false: not computed by this version (only true is)");
  EXPECT_EQ(refused(gpt2(R"(,"scale_attn_by_inverse_layer_idx":true)")),
            "scale_attn_by_inverse_layer_idx = true: not computed by this version (only false is)");
  EXPECT_EQ(refused(gpt2(R"(,"add_cross_attention":true)")),
            "add_cross_attention = true: not computed by this version (only false is)");
  EXPECT_EQ(refused(llama(R"(,"quantization_config":{"bits":4})")),
            "quantization_config is given: quantised weights are not supported; save the folder with plain weights");
  EXPECT_EQ(refused(llama(R"(,"per_layer_config":{"1":{"intermediate_size":9}})")),
            "per_layer_config is given: layers that differ from each other are not supported");
  EXPECT_EQ(refused(llama(R"(,"architectures":["LlamaForSequenceClassification"])")),
            "architectures has \"LlamaForSequenceClassification\"; this version computes LlamaForCausalLM");
}

TEST_F(HfConfigTest, ContradictionsAreRefused) {
  EXPECT_EQ(refused(llama(R"(,"rope_theta":1e4,"rope_parameters":{"rope_theta":5e5})")),
            "rope_theta = 10000.0: contradicts rope_parameters.rope_theta");
  EXPECT_EQ(refused(llama(R"(,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"})")),
            "rope_scaling = an object: contradicts rope_parameters");
  EXPECT_EQ(refused(llama(R"(,"rope_scaling":{"type":"linear","rope_type":"llama3","factor":2})")),
            "rope_scaling.type = \"linear\": contradicts rope_type = \"llama3\"");
  EXPECT_EQ(refused(llama(R"(,"num_attention_heads":4,"num_key_value_heads":3)")),
            "num_key_value_heads = 3: does not divide the 4 heads");
  EXPECT_EQ(refused(gpt2(R"(,"n_head":7)")), "n_embd is absent: not a multiple of the 7 heads");
  EXPECT_EQ(refused(llama(R"(,"rope_scaling":{"type":"linear"})")), "rope_scaling.type = \"linear\": needs a factor");
}

TEST_F(HfConfigTest, UnknownModelsAreRefusedWithTheNearestName) {
  EXPECT_EQ(refused(R"({"model_type":"lama"})"), "model_type = \"lama\": not known; did you mean \"llama\"?");
  EXPECT_EQ(refused(R"({"model_type":"deepseek_v3"})"),
            "model_type = \"deepseek_v3\": not known; the known ones are gpt2, llama");
  EXPECT_EQ(refused("{}"), "there is no model_type; the known ones are gpt2, llama");
}

TEST_F(HfConfigTest, ValuesOfTheWrongKindAreRefused) {
  EXPECT_EQ(refused(gpt2(R"(,"n_embd":"wide")")), "n_embd must be an integer from 1 to 2147483647, got \"wide\"");
  EXPECT_EQ(refused(gpt2(R"(,"n_embd":24.5)")), "n_embd must be an integer from 1 to 2147483647, got 24.5");
  EXPECT_EQ(refused(gpt2(R"(,"n_layer":0)")), "n_layer must be an integer from 1 to 2147483647, got 0");
  EXPECT_EQ(refused(gpt2(R"(,"n_layer":18446744073709551615)")),
            "n_layer must be an integer from 1 to 2147483647, got 18446744073709551615");
  EXPECT_EQ(refused(llama(R"(,"rms_norm_eps":-1)")), "rms_norm_eps must be a positive number, got -1");
  EXPECT_EQ(refused(llama(R"(,"rope_scaling":"llama3")")), "rope_scaling must be an object, got \"llama3\"");
  EXPECT_EQ(refused(llama(R"(,"tie_word_embeddings":1)")), "tie_word_embeddings must be true or false, got 1");
}

TEST_F(HfConfigTest, FilesThatAreNotOne) {
  EXPECT_EQ(refused("{"), "is not valid JSON: byte 2");
  EXPECT_EQ(refused("[1]"), "must hold a JSON object, not array");
  EXPECT_EQ(refused(R"({"model_type":"gpt2","model_type":"llama"})"), "the key \"model_type\" appears twice");
  EXPECT_EQ(refused(std::string(100, '[')), "it is nested deeper than 64 levels");
}

TEST_F(HfConfigTest, WhatHasNoEffectIsNoted) {
  const HfConfig config = read(gpt2(R"(,"resid_pdrop":0.1,"use_cache":true,"favourite_colour":"red")"));
  EXPECT_EQ(config.notes,
            (std::vector<std::string>{"config.json has resid_pdrop = 0.1; dropout in training is what dropout says",
                                      "config.json has \"favourite_colour\", which has no effect here"}));
}

TEST_F(HfConfigTest, WhatIsWrittenReadsBack) {
  for (const std::string& text :
       {gpt2(R"(,"n_inner":40,"layer_norm_epsilon":1e-6)"), gpt2(R"(,"tie_word_embeddings":false,"n_positions":7)"),
        llama(R"(,"head_dim":6,"tie_word_embeddings":true)"),
        llama(R"(,"rope_scaling":{"type":"linear","factor":2.5})"),
        llama(R"(,"rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1.5,"high_freq_factor":3,
                 "original_max_position_embeddings":77})")}) {
    const ModelConfig first = model(text);
    EXPECT_EQ(model(hf_config_json(first, DType::bf16, "")), first) << text;
  }
}

TEST_F(HfConfigTest, SpecialTokensAreCarriedAlong) {
  put("config.json", llama(R"(,"bos_token_id":5,"eos_token_id":[6,7],"pad_token_id":null)"));
  const std::string generation = generation_config_of(folder_);
  EXPECT_NE(generation.find("\"bos_token_id\": 5"), std::string::npos) << generation;
  EXPECT_EQ(generation.find("pad_token_id"), std::string::npos) << generation;
  put("config.json", hf_config_json(read_hf_config(folder_).model, DType::f32, generation));
  EXPECT_EQ(generation_config_of(folder_), generation);
}

TEST_F(HfConfigTest, SizesOfNoModelAreRefusedByKey) {
  EXPECT_EQ(refused(gpt2(R"(,"n_layer":1000000000)")), "n_layer = 1000000000: more layers than the 10000 of any model");
  EXPECT_EQ(refused(llama(R"(,"num_hidden_layers":2147483647)")),
            "num_hidden_layers = 2147483647: more layers than the 10000 of any model");
  EXPECT_EQ(refused(gpt2(R"(,"n_embd":2147483647,"n_head":1)")),
            "n_embd = 2147483647: with the other sizes it makes about 9e+20 parameters, more than any model has");
  EXPECT_EQ(model(llama(R"(,"num_hidden_layers":1000)")).layers, 1000);
}

}  // namespace
}  // namespace trireme::io
