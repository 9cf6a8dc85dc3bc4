#include "trireme/io/gguf_names.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/io/hf_names.h"
#include "trireme/io/model_settings.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

// By family: what stands for our names, behind "blk.N." where ours are in block N.
struct Name {
  std::string_view ours, theirs;
};
constexpr auto kNames = std::to_array<Name>({
    {"wte.weight", "token_embd.weight"},
    {"embed.weight", "token_embd.weight"},
    {"wpe.weight", "position_embd.weight"},
    {"ln_f.weight", "output_norm.weight"},
    {"ln_f.bias", "output_norm.bias"},
    {"norm.weight", "output_norm.weight"},
    {"head.weight", "output.weight"},
    {"ln1.weight", "attn_norm.weight"},
    {"ln1.bias", "attn_norm.bias"},
    {"attn_norm.weight", "attn_norm.weight"},
    {"attn.qkv.weight", "attn_qkv.weight"},
    {"attn.qkv.bias", "attn_qkv.bias"},
    {"attn.q.weight", "attn_q.weight"},
    {"attn.k.weight", "attn_k.weight"},
    {"attn.v.weight", "attn_v.weight"},
    {"attn.o.weight", "attn_output.weight"},
    {"attn.proj.weight", "attn_output.weight"},
    {"attn.proj.bias", "attn_output.bias"},
    {"ln2.weight", "ffn_norm.weight"},
    {"ln2.bias", "ffn_norm.bias"},
    {"mlp_norm.weight", "ffn_norm.weight"},
    {"mlp.gate.weight", "ffn_gate.weight"},
    {"mlp.up.weight", "ffn_up.weight"},
    {"mlp.up.bias", "ffn_up.bias"},
    {"mlp.down.weight", "ffn_down.weight"},
    {"mlp.down.bias", "ffn_down.bias"},
});

std::string their_name(const std::string& ours) {
  constexpr std::string_view kBlocks = "blocks.";
  std::string_view rest = ours;
  std::string prefix;
  if (rest.starts_with(kBlocks)) {
    const std::size_t dot = rest.find('.', kBlocks.size());
    prefix = fmt::format("blk.{}.", rest.substr(kBlocks.size(), dot - kBlocks.size()));
    rest.remove_prefix(dot + 1);
  }
  const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const Name& name) { return name.ours == rest; });
  if (found == kNames.end()) fail("'{}' has no name in GGUF files", ours);
  return prefix + std::string(found->theirs);
}

// Of ours: what the factors of a scaled rotary embedding follow from.
constexpr std::string_view kRopeKeys = "trireme.rope.";

std::int64_t head_of(const ModelConfig& m) { return m.head_dim == 0 ? m.width / m.heads : m.head_dim; }

// The keys of a file that begin with `prefix`, without it.
nlohmann::json settings_of(const GgufFile& file, std::string_view prefix) {
  nlohmann::json object = nlohmann::json::object();
  for (auto at = file.metadata().lower_bound(std::string(prefix));
       at != file.metadata().end() && at->first.starts_with(prefix); ++at)
    std::visit([&](const auto& value) { object[at->first.substr(prefix.size())] = value; }, at->second);
  return object;
}

// The scaling of which a file has the factors: by our keys, or with the numbers that Llama 3.1 and later have. It must
// give these factors.
void read_rope_factors(const GgufFile& file, ModelConfig& m) {
  const std::vector<float> factors = file.read(kRopeFactors, {head_of(m) / 2});
  if (m.rope_scaling != "none" || factors.empty())
    refuse("{}: has {} and llama.rope.scaling.type = \"{}\"; one of them can be imported", file.path(), kRopeFactors,
           m.rope_scaling);
  const nlohmann::json object = settings_of(file, kRopeKeys);
  const HfSettings s(object, file.path(), std::string(kRopeKeys));
  m.rope_scaling = "llama3";
  m.rope_factor = s.positive({"factor"}, *std::max_element(factors.begin(), factors.end()));
  m.rope_low = s.positive({"low"}, 1);
  m.rope_high = s.positive({"high"}, 4);
  m.rope_original = s.size({"original"}, 8192);
  const std::vector<float> ours = rope_factors(m);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!(std::abs(ours[i] - factors[i]) <= 1e-4F * ours[i]))
      refuse("{}: {} has {} for frequency {}, and Llama 3's scaling by {} gives {}: it is scaled in another way",
             file.path(), kRopeFactors, factors[i], i, m.rope_factor, ours[i]);
}

// Keys of models that are computed in another way, and what they are where nothing is.
struct Neutral {
  std::string_view key;
  double value;
};
constexpr auto kNeutral = std::to_array<Neutral>({
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.scale", 0},
    {"attention.sliding_window", 0},
    {"embedding_scale", 0},
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"logit_scale", 0},
    {"residual_scale", 0},
    {"rope.scale_linear", 1},
    {"rope.scaling.attn_factor", 1},
});

void check_neutral(const HfSettings& s) {
  for (const auto& [key, value] : kNeutral)
    if (const double given = s.number(key, value); !(given == value))
      s.refuse_value(key, fmt::format("not computed by this version (only {} is)", value));
  s.must_be("attention.causal", true);
  s.must_be("use_parallel_residual", false);
}

void read_gpt2(const HfSettings& s, ModelConfig& m) { m.norm_eps = s.positive({"attention.layer_norm_epsilon"}, 1e-5); }

void read_llama(const HfSettings& s, ModelConfig& m) {
  m.norm_eps = s.positive({"attention.layer_norm_rms_epsilon"}, 1e-5);
  m.rope_theta = s.positive({"rope.freq_base"}, 10000);
  m.rope_scaling = s.text("rope.scaling.type", "none");
  if (m.rope_scaling != "none" && m.rope_scaling != "linear")
    s.refuse_value("rope.scaling.type", "none and linear can be imported");
  if (m.rope_scaling == "linear" && !s.has("rope.scaling.factor"))
    s.refuse_value("rope.scaling.type", "needs rope.scaling.factor");
  const double factor = s.positive({"rope.scaling.factor"}, 1);
  m.rope_factor = m.rope_scaling == "linear" ? factor : 1;
}

// theirs[2i + s] = ours[s · half + i] within each head, or the other way round.
std::vector<float> permuted(const GgufParameter& p, std::vector<float> values, bool back) {
  if (p.heads == 0) return values;
  const std::int64_t width = p.stored.back();
  const std::int64_t rows = p.stored[0] / p.heads;
  std::vector<float> result(values.size());
  for (std::int64_t h = 0; h < p.heads; ++h)
    for (std::int64_t s = 0; s < 2; ++s)
      for (std::int64_t i = 0; i < rows / 2; ++i) {
        const std::int64_t ours = h * rows + s * (rows / 2) + i, theirs = h * rows + 2 * i + s;
        const std::int64_t from = back ? theirs : ours, to = back ? ours : theirs;
        std::copy_n(values.begin() + from * width, width, result.begin() + to * width);
      }
  return result;
}

}  // namespace

std::vector<GgufParameter> gguf_parameters(const ModelConfig& model, const OptionNames& names) {
  if (model.family == "gpt2" && model.head_dim != 0 && model.head_dim * model.heads != model.width)
    refuse("{} = {}: a GGUF file of a GPT-2 has heads of {} / {} = {}", names.head_dim, model.head_dim, names.width,
           names.heads, model.width / model.heads);
  std::vector<GgufParameter> parameters;
  for (const HfTensor& tensor : hf_tensors(model, names)) {
    GgufParameter p;
    p.ours = tensor.ours;
    p.shape = tensor.shape;
    p.theirs = their_name(tensor.ours);
    p.stored = tensor.stored;
    if (tensor.transposed) std::swap(p.stored[0], p.stored[1]);
    if (model.family == "llama" && tensor.ours.ends_with("attn.q.weight")) p.heads = model.heads;
    if (model.family == "llama" && tensor.ours.ends_with("attn.k.weight"))
      p.heads = model.kv_heads == 0 ? model.heads : model.kv_heads;
    p.table = p.theirs == "token_embd.weight" || p.theirs == "output.weight";
    parameters.push_back(std::move(p));
  }
  return parameters;
}

std::vector<GgufParameter> gguf_parameters(const GgufFile& file, const ModelConfig& model) {
  const std::vector<GgufTensor>& tensors = file.tensors();
  if (model.layers > std::ssize(tensors))
    refuse("{}: {}.block_count = {}, but there are {} tensors in all", file.path(), model.family, model.layers,
           tensors.size());
  std::vector<GgufParameter> parameters = gguf_parameters(model);
  std::set<std::string_view> known;
  for (const GgufParameter& p : parameters) {
    known.insert(p.theirs);
    const GgufTensor* tensor = file.find(p.theirs);
    if (tensor == nullptr) refuse("{}: there is no tensor '{}'", file.path(), p.theirs);
    if (tensor->shape != p.stored)
      refuse("{}: '{}' is {}, but the file's metadata make it {}", file.path(), p.theirs, tensor->shape.str(),
             p.stored.str());
  }
  for (const GgufTensor& tensor : tensors)
    if (!known.contains(tensor.name) && !(model.family == "llama" && tensor.name == kRopeFactors))
      refuse("{}: {} is no part of the {} of {} layers that the file's metadata describe", file.path(),
             for_message(tensor.name), model.family, model.layers);
  return parameters;
}

std::vector<float> rope_factors(const ModelConfig& m) {
  std::vector<float> factors;
  if (m.family != "llama" || m.rope_scaling != "llama3") return factors;
  const std::int64_t head = head_of(m);
  for (std::int64_t i = 0; i < head / 2; ++i) {
    const double plain = std::pow(m.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head));
    // As the op rotary has it: waves that turn seldom within the original context are stretched, others are kept.
    const double turns = static_cast<double>(m.rope_original) * plain / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - m.rope_low) / (m.rope_high - m.rope_low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - kept) / m.rope_factor + kept)));
  }
  return factors;
}

std::vector<float> to_gguf(const GgufParameter& parameter, std::vector<float> values) {
  return permuted(parameter, std::move(values), false);
}
std::vector<float> from_gguf(const GgufParameter& parameter, std::vector<float> values) {
  return permuted(parameter, std::move(values), true);
}

GgufMetadata gguf_metadata(const ModelConfig& m) {
  const auto count = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const std::string arch = m.family;
  GgufMetadata metadata = {{"general.architecture", arch},
                           {arch + ".context_length", count(std::max(m.context, m.max_context))},
                           {arch + ".embedding_length", count(m.width)},
                           {arch + ".block_count", count(m.layers)},
                           {arch + ".feed_forward_length", count(m.ffn)},
                           {arch + ".attention.head_count", count(m.heads)},
                           {arch + ".vocab_size", count(m.vocab)}};
  if (m.family == "gpt2") {
    metadata.emplace_back("gpt2.attention.layer_norm_epsilon", static_cast<float>(m.norm_eps));
    return metadata;
  }
  const std::int64_t head = head_of(m);
  metadata.emplace_back("llama.attention.head_count_kv", count(m.kv_heads == 0 ? m.heads : m.kv_heads));
  metadata.emplace_back("llama.attention.layer_norm_rms_epsilon", static_cast<float>(m.norm_eps));
  metadata.emplace_back("llama.attention.key_length", count(head));
  metadata.emplace_back("llama.attention.value_length", count(head));
  metadata.emplace_back("llama.rope.dimension_count", count(head));
  metadata.emplace_back("llama.rope.freq_base", static_cast<float>(m.rope_theta));
  if (m.rope_scaling == "linear") {
    metadata.emplace_back("llama.rope.scaling.type", std::string("linear"));
    metadata.emplace_back("llama.rope.scaling.factor", static_cast<float>(m.rope_factor));
  }
  // Readers scale by the factors alone; these keys are for our own import.
  if (m.rope_scaling == "llama3") {
    metadata.emplace_back(std::string(kRopeKeys) + "factor", m.rope_factor);
    metadata.emplace_back(std::string(kRopeKeys) + "low", m.rope_low);
    metadata.emplace_back(std::string(kRopeKeys) + "high", m.rope_high);
    metadata.emplace_back(std::string(kRopeKeys) + "original", count(m.rope_original));
  }
  return metadata;
}

GgufModel gguf_model(const GgufFile& file) {
  GgufModel out;
  ModelConfig& m = out.model;
  m.family = file.text("general.architecture");
  if (m.family != "gpt2" && m.family != "llama")
    refuse("{}: general.architecture = \"{}\"; gpt2 and llama can be imported", file.path(), m.family);
  const std::string prefix = m.family + ".";
  const nlohmann::json object = settings_of(file, prefix);
  const HfSettings s(object, file.path(), prefix);
  const auto required = [&](std::string_view key) {
    if (!s.has(key)) refuse("{}: there is no key '{}{}'", file.path(), prefix, key);
    return s.size({key}, 0);
  };
  m.context = required("context_length");
  m.width = required("embedding_length");
  m.layers = required("block_count");
  m.ffn = required("feed_forward_length");
  m.heads = required("attention.head_count");
  const GgufTensor* table = file.find("token_embd.weight");
  if (table == nullptr || table->shape.rank() != 2)
    refuse("{}: there is no token_embd.weight [vocab, width]", file.path());
  m.vocab = table->shape[0];
  if (s.size({"vocab_size"}, m.vocab) != m.vocab)
    s.refuse_value("vocab_size", fmt::format("contradicts token_embd.weight, which has {} rows", m.vocab));
  m.tie_embeddings = file.find("output.weight") == nullptr;
  const bool llama = m.family == "llama";
  read_heads(s,
             {.width = "embedding_length",
              .kv_heads = llama ? "attention.head_count_kv" : "",
              .head_dim = llama ? "attention.key_length" : ""},
             m);
  // A GPT-2's heads follow from its width alone.
  for (const std::string_view key :
       {"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    const std::int64_t only = key == "attention.head_count_kv" ? m.kv_heads : m.head_dim;
    if (s.size({key}, only) != only)
      s.refuse_value(key, fmt::format("not computed by this version (only {} is)", only));
  }
  check_size(s, "block_count", "embedding_length", m);
  check_neutral(s);
  (llama ? read_llama : read_gpt2)(s, m);
  if (llama && file.find(kRopeFactors) != nullptr) read_rope_factors(file, m);
  s.ignore("rope.scaling.finetuned");
  s.ignore("tensor_data_layout");
  for (const std::string& key : s.unread())
    out.notes.push_back(fmt::format("the file has {}, which has no effect here", for_message(key)));
  return out;
}

}  // namespace trireme::io
