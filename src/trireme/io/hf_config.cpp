#include "trireme/io/hf_config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/text.h"
#include "trireme/io/hf_settings.h"
#include "trireme/io/json_file.h"
#include "trireme/io/model_settings.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

using Json = nlohmann::ordered_json;

// Both directions of one family.
struct Family {
  std::string_view name;  // their model_type and our family
  std::string_view causal;
  std::string_view base;
  void (*read)(const HfSettings&, const OptionNames&, HfConfig&);
  void (*write)(const ModelConfig&, Json&);
};

// Keys on which no logit depends.
constexpr auto kHarmless = std::to_array<std::string_view>({
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "attn_implementation",
    "bos_token_id",
    "chunk_size_feed_forward",
    "do_sample",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_length",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "predict_special_tokens",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "return_dict",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "vocab_file",
});

constexpr std::array<std::string_view, 3> kTokenKeys = {"bos_token_id", "eos_token_id", "pad_token_id"};

void note_dropout(const HfSettings& s, std::initializer_list<std::string_view> keys, const OptionNames& names,
                  HfConfig& out) {
  for (const std::string_view key : keys)
    if (const double p = s.number(key, 0); p != 0)
      out.notes.push_back(
          fmt::format("config.json has {} = {}; dropout in training is what {} says", key, p, names.dropout));
}

void read_gpt2(const HfSettings& s, const OptionNames& names, HfConfig& out) {
  ModelConfig& m = out.model;
  m.width = s.size({"n_embd", "hidden_size"}, 768);
  m.layers = s.size({"n_layer", "num_hidden_layers"}, 12);
  m.heads = s.size({"n_head", "num_attention_heads"}, 12);
  m.context = s.size({"n_positions", "max_position_embeddings", "n_ctx"}, 1024);
  m.vocab = s.size({"vocab_size"}, 50257);
  m.ffn = s.size({"n_inner"}, 4 * m.width);
  m.norm_eps = s.positive({"layer_norm_epsilon"}, 1e-5);
  m.init_std = s.positive({"initializer_range"}, 0.02);
  m.tie_embeddings = s.flag("tie_word_embeddings", true);
  const std::string_view width = s.has("hidden_size") ? "hidden_size" : "n_embd";
  read_heads(s, {.width = width}, m);
  check_size(s, s.has("num_hidden_layers") ? "num_hidden_layers" : "n_layer", width, m);
  // GELU by tanh under its names; they differ in how they round.
  constexpr std::array<std::string_view, 4> gelu = {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast"};
  const std::string activation = s.text("activation_function", "gelu_new");
  if (std::find(gelu.begin(), gelu.end(), activation) == gelu.end())
    s.refuse_value("activation_function",
                   fmt::format("not computed by this version (only {} are)", fmt::join(gelu, ", ")));
  s.must_be("scale_attn_weights", true);
  s.must_be("scale_attn_by_inverse_layer_idx", false);
  s.must_be("add_cross_attention", false);
  note_dropout(s, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, names, out);
}

void write_gpt2(const ModelConfig& m, Json& out) {
  out["vocab_size"] = m.vocab;
  out["n_positions"] = m.context;
  out["n_embd"] = m.width;
  out["n_layer"] = m.layers;
  out["n_head"] = m.heads;
  out["n_inner"] = m.ffn == 4 * m.width ? Json() : Json(m.ffn);
  out["activation_function"] = "gelu_new";
  out["layer_norm_epsilon"] = m.norm_eps;
  out["initializer_range"] = m.init_std;
  out["tie_word_embeddings"] = m.tie_embeddings.value_or(true);
  out["resid_pdrop"] = m.dropout;
  out["embd_pdrop"] = m.dropout;
  out["attn_pdrop"] = 0.0;
}

struct Rope {
  double theta = 10000;
  std::string scaling = "none";
  double factor = 1;
  double low = 1;
  double high = 4;
  std::int64_t original = 8192;

  friend bool operator==(const Rope&, const Rope&) = default;
};

// `s` is rope_scaling (transformers 4) or rope_parameters (5). `theta` is what stands next to it.
Rope read_rope(const HfSettings& s, double theta, std::int64_t context) {
  Rope rope;
  rope.theta = s.positive({"rope_theta"}, theta);
  if (s.has("partial_rotary_factor") && s.number("partial_rotary_factor", 1) != 1)
    s.refuse_value("partial_rotary_factor", "not computed by this version (only 1 is)");
  const std::string_view spelling = s.has("rope_type") ? "rope_type" : "type";
  const std::string type = s.text(spelling, "default");
  if (s.has("rope_type") && s.has("type") && s.text("type", "") != type)
    s.refuse_value("type", fmt::format("contradicts rope_type = \"{}\"", type));
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3")
    s.refuse_value(spelling, "not computed by this version (default, linear and llama3 are)");
  rope.scaling = type;
  if (!s.has("factor")) s.refuse_value(spelling, "needs a factor");
  rope.factor = s.positive({"factor"}, 1);
  if (type == "linear") return rope;
  rope.low = s.positive({"low_freq_factor"}, 1);
  rope.high = s.positive({"high_freq_factor"}, 4);
  rope.original = s.size({"original_max_position_embeddings"}, context);
  return rope;
}

void note_unread(const HfSettings& s, HfConfig& out) {
  for (const std::string& key : s.unread())
    out.notes.push_back(fmt::format("config.json has {}, which has no effect here", for_message(key)));
}

Rope read_ropes(const HfSettings& s, HfConfig& out) {
  const double theta = s.positive({"rope_theta"}, 10000);
  const std::array<std::string_view, 2> spellings = {"rope_parameters", "rope_scaling"};
  std::vector<Rope> ropes;
  for (const std::string_view key : spellings) {
    if (!s.has(key)) continue;
    const HfSettings inside = s.inside(key);
    ropes.push_back(read_rope(inside, theta, out.model.context));
    note_unread(inside, out);
  }
  if (ropes.size() == 2 && !(ropes[0] == ropes[1])) s.refuse_value(spellings[1], "contradicts rope_parameters");
  if (ropes.empty()) return {.theta = theta};
  if (s.has("rope_theta") && ropes[0].theta != theta)
    s.refuse_value("rope_theta",
                   fmt::format("contradicts {}.rope_theta", s.has(spellings[0]) ? spellings[0] : spellings[1]));
  return ropes[0];
}

void read_llama(const HfSettings& s, const OptionNames& names, HfConfig& out) {
  ModelConfig& m = out.model;
  m.width = s.size({"hidden_size"}, 4096);
  m.layers = s.size({"num_hidden_layers"}, 32);
  m.heads = s.size({"num_attention_heads"}, 32);
  m.ffn = s.size({"intermediate_size"}, 11008);
  m.context = s.size({"max_position_embeddings"}, 2048);
  m.vocab = s.size({"vocab_size"}, 32000);
  m.norm_eps = s.positive({"rms_norm_eps"}, 1e-6);
  m.init_std = s.positive({"initializer_range"}, 0.02);
  m.tie_embeddings = s.flag("tie_word_embeddings", false);
  read_heads(s, {.width = "hidden_size", .kv_heads = "num_key_value_heads", .head_dim = "head_dim"}, m);
  check_size(s, "num_hidden_layers", "hidden_size", m);
  const std::string activation = s.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    s.refuse_value("hidden_act", "not computed by this version (only silu is)");
  s.must_be("attention_bias", false);
  s.must_be("mlp_bias", false);
  if (s.has("partial_rotary_factor") && s.number("partial_rotary_factor", 1) != 1)
    s.refuse_value("partial_rotary_factor", "not computed by this version (only 1 is)");
  const Rope rope = read_ropes(s, out);
  m.rope_theta = rope.theta;
  m.rope_scaling = rope.scaling;
  m.rope_factor = rope.factor;
  m.rope_low = rope.low;
  m.rope_high = rope.high;
  m.rope_original = rope.original;
  // transformers 5 lets the one outside win.
  if (s.has("original_max_position_embeddings") && rope.scaling == "llama3" &&
      s.size({"original_max_position_embeddings"}, 0) != rope.original)
    s.refuse_value("original_max_position_embeddings",
                   fmt::format("contradicts the {} of the rotary scaling", rope.original));
  note_dropout(s, {"attention_dropout"}, names, out);
}

void write_llama(const ModelConfig& m, Json& out) {
  out["vocab_size"] = m.vocab;
  out["hidden_size"] = m.width;
  out["intermediate_size"] = m.ffn;
  out["num_hidden_layers"] = m.layers;
  out["num_attention_heads"] = m.heads;
  out["num_key_value_heads"] = m.kv_heads == 0 ? m.heads : m.kv_heads;
  out["head_dim"] = m.head_dim == 0 ? m.width / m.heads : m.head_dim;
  out["max_position_embeddings"] = std::max(m.context, m.max_context);
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = m.norm_eps;
  out["initializer_range"] = m.init_std;
  out["tie_word_embeddings"] = m.tie_embeddings.value_or(false);
  out["attention_bias"] = false;
  out["mlp_bias"] = false;
  out["attention_dropout"] = 0.0;
  // The spelling of transformers 4, which 5 reads too.
  out["rope_theta"] = m.rope_theta;
  Json& scaling = out["rope_scaling"];
  if (m.rope_scaling == "none") return;
  scaling = {{"rope_type", m.rope_scaling}, {"factor", m.rope_factor}};
  if (m.rope_scaling == "linear") return;
  scaling["low_freq_factor"] = m.rope_low;
  scaling["high_freq_factor"] = m.rope_high;
  scaling["original_max_position_embeddings"] = m.rope_original;
}

constexpr std::array<Family, 2> kFamilies = {{
    {"gpt2", "GPT2LMHeadModel", "GPT2Model", read_gpt2, write_gpt2},
    {"llama", "LlamaForCausalLM", "LlamaModel", read_llama, write_llama},
}};

std::string config_path(const std::string& folder) { return (std::filesystem::path(folder) / "config.json").string(); }

std::vector<std::string> architectures(const nlohmann::json& config, const std::string& path) {
  std::vector<std::string> names;
  const auto found = config.find("architectures");
  if (found == config.end() || found->is_null()) return names;
  if (!found->is_array()) refuse("{}: architectures must be a list of names", path);
  for (const auto& name : *found) {
    if (!name.is_string()) refuse("{}: architectures must be a list of names", path);
    names.push_back(name.get<std::string>());
  }
  return names;
}

const Family& family_of(const HfSettings& s, const std::vector<std::string>& architectures, const std::string& path) {
  std::vector<std::string> known;
  known.reserve(kFamilies.size());
  for (const Family& family : kFamilies) known.emplace_back(family.name);
  // The first config.json files had no model_type.
  if (!s.has("model_type")) {
    for (const Family& family : kFamilies)
      for (const std::string& name : architectures)
        if (name == family.causal || name == family.base) return family;
    refuse("{}: there is no model_type; the known ones are {}", path, fmt::join(known, ", "));
  }
  const std::string type = s.text("model_type", "");
  for (const Family& family : kFamilies)
    if (family.name == type) return family;
  const auto near = nearest(type, known);
  s.refuse_value("model_type", near ? fmt::format("not known; did you mean \"{}\"?", *near)
                                    : fmt::format("not known; the known ones are {}", fmt::join(known, ", ")));
}

}  // namespace

HfConfig read_hf_config(const std::string& folder, const OptionNames& names) {
  const std::string path = config_path(folder);
  const nlohmann::json object = read_json_object(path);
  const HfSettings s(object, path);
  const std::vector<std::string> classes = architectures(object, path);
  s.ignore("architectures");
  const Family& family = family_of(s, classes, path);
  const bool fits = std::any_of(classes.begin(), classes.end(),
                                [&](const std::string& name) { return name == family.causal || name == family.base; });
  if (!classes.empty() && !fits)
    refuse("{}: architectures has {}; this version computes {}", path, for_message(classes.front()), family.causal);
  s.must_be_empty("quantization_config", "quantised weights are not supported; save the folder with plain weights");
  s.must_be_empty("auto_map", "the model has code of its own, which is not run here");
  s.must_be_empty("pruned_heads", "pruned attention heads are not supported");
  s.must_be_empty("per_layer_config", "layers that differ from each other are not supported");
  s.must_be("is_encoder_decoder", false);
  HfConfig out;
  out.model.family = family.name;
  family.read(s, names, out);
  for (const std::string_view key : kHarmless) s.ignore(key);
  note_unread(s, out);
  return out;
}

std::string hf_config_json(const ModelConfig& model, DType dtype, const std::string& generation) {
  const auto family =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& f) { return f.name == model.family; });
  if (family == kFamilies.end())
    refuse("family = \"{}\" has no counterpart in transformers; gpt2 and llama have", model.family);
  Json out;
  out["architectures"] = {family->causal};
  out["model_type"] = family->name;
  family->write(model, out);
  out["torch_dtype"] = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  const Json tokens = parse_ordered_json(generation);
  for (const std::string_view key : kTokenKeys)
    out[std::string(key)] = tokens.is_object() && tokens.contains(key) ? tokens[std::string(key)] : Json();
  out["use_cache"] = true;
  return out.dump(2) + "\n";
}

std::string generation_config_of(const std::string& folder) {
  const nlohmann::json config = read_json_object(config_path(folder));
  Json out = {{"_from_model_config", true}};
  for (const std::string_view key : kTokenKeys)
    if (const auto found = config.find(key); found != config.end() && !found->is_null()) out[std::string(key)] = *found;
  return out.dump(2) + "\n";
}

}  // namespace trireme::io
