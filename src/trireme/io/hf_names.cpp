#include "trireme/io/hf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "trireme/core/error.h"

namespace trireme::io {
namespace {

enum class Stored { same, transposed };

// A row of a family's table. `*` stands for the number of a block. The letters of `shape` are our dimensions: v vocab,
// c context, w width, h heads, g key-value heads, d features of a head, f feed-forward, 3 itself. The bar is where
// theirs folds them into rows and columns; without one theirs is a vector.
struct NameRow {
  std::string_view ours;
  std::string_view theirs;
  std::string_view shape;
  Stored stored = Stored::same;  // transposed: a Conv1D, which keeps [in, out]
};

constexpr auto kGpt2 = std::to_array<NameRow>({
    {"wte.weight", "wte.weight", "v|w"},
    {"wpe.weight", "wpe.weight", "c|w"},
    {"blocks.*.ln1.weight", "h.*.ln_1.weight", "w"},
    {"blocks.*.ln1.bias", "h.*.ln_1.bias", "w"},
    {"blocks.*.attn.qkv.weight", "h.*.attn.c_attn.weight", "3hd|w", Stored::transposed},
    {"blocks.*.attn.qkv.bias", "h.*.attn.c_attn.bias", "3hd"},
    {"blocks.*.attn.proj.weight", "h.*.attn.c_proj.weight", "w|w", Stored::transposed},
    {"blocks.*.attn.proj.bias", "h.*.attn.c_proj.bias", "w"},
    {"blocks.*.ln2.weight", "h.*.ln_2.weight", "w"},
    {"blocks.*.ln2.bias", "h.*.ln_2.bias", "w"},
    {"blocks.*.mlp.up.weight", "h.*.mlp.c_fc.weight", "f|w", Stored::transposed},
    {"blocks.*.mlp.up.bias", "h.*.mlp.c_fc.bias", "f"},
    {"blocks.*.mlp.down.weight", "h.*.mlp.c_proj.weight", "w|f", Stored::transposed},
    {"blocks.*.mlp.down.bias", "h.*.mlp.c_proj.bias", "w"},
    {"ln_f.weight", "ln_f.weight", "w"},
    {"ln_f.bias", "ln_f.bias", "w"},
});

constexpr auto kLlama = std::to_array<NameRow>({
    {"embed.weight", "embed_tokens.weight", "v|w"},
    {"blocks.*.attn_norm.weight", "layers.*.input_layernorm.weight", "w"},
    {"blocks.*.attn.q.weight", "layers.*.self_attn.q_proj.weight", "hd|w"},
    {"blocks.*.attn.k.weight", "layers.*.self_attn.k_proj.weight", "gd|w"},
    {"blocks.*.attn.v.weight", "layers.*.self_attn.v_proj.weight", "gd|w"},
    {"blocks.*.attn.o.weight", "layers.*.self_attn.o_proj.weight", "w|hd"},
    {"blocks.*.mlp_norm.weight", "layers.*.post_attention_layernorm.weight", "w"},
    {"blocks.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", "f|w"},
    {"blocks.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", "f|w"},
    {"blocks.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", "w|f"},
    {"norm.weight", "norm.weight", "w"},
});

// Where the weights are not tied. It stands outside the model that the prefix names.
constexpr NameRow kHead = {"head.weight", "lm_head.weight", "v|w"};

struct Table {
  std::string_view family;
  std::string_view prefix;
  bool tied;  // when the configuration does not say
  std::span<const NameRow> rows;
  std::array<std::string_view, 2> buffers;
};

constexpr std::array<Table, 2> kTables = {{
    {"gpt2", "transformer.", true, kGpt2, {"h.*.attn.bias", "h.*.attn.masked_bias"}},
    {"llama", "model.", false, kLlama, {"layers.*.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}},
}};

const Table& table_of(const ModelConfig& model, const OptionNames& names = {}) {
  for (const Table& table : kTables)
    if (table.family == model.family) return table;
  refuse("{} = \"{}\" has no counterpart in transformers; gpt2 and llama have", names.family, model.family);
}

std::int64_t extent(char dimension, const ModelConfig& m) {
  const bool own_heads = m.family != "gpt2";  // GPT-2 cuts its width evenly, whatever these keys say
  switch (dimension) {
    case 'v': return m.vocab;
    case 'c': return m.context;
    case 'w': return m.width;
    case 'f': return m.ffn;
    case 'h': return m.heads;
    case 'g': return own_heads && m.kv_heads != 0 ? m.kv_heads : m.heads;
    case 'd': return own_heads && m.head_dim != 0 ? m.head_dim : m.width / m.heads;
    default: return dimension - '0';
  }
}

std::string in_block(std::string_view name, std::int64_t block) {
  std::string text(name);
  if (const std::size_t star = text.find('*'); star != std::string::npos) text.replace(star, 1, std::to_string(block));
  return text;
}

HfTensor make(const NameRow& row, std::string_view prefix, std::int64_t block, const ModelConfig& model) {
  HfTensor t;
  t.ours = in_block(row.ours, block);
  t.theirs = std::string(prefix) + in_block(row.theirs, block);
  t.transposed = row.stored == Stored::transposed;
  std::int64_t part = 1;
  for (const char c : row.shape) {
    if (c == '|') {
      t.stored.push_back(part);
      part = 1;
      continue;
    }
    t.shape.push_back(extent(c, model));
    part *= t.shape.back();
  }
  t.stored.push_back(part);
  if (t.transposed) std::swap(t.stored[0], t.stored[1]);
  return t;
}

// Does `name` read like `pattern`, with any number for the star?
bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view tail = pattern.substr(star + 1);
  if (name.size() <= star + tail.size() || !name.starts_with(pattern.substr(0, star)) || !name.ends_with(tail))
    return false;
  const std::string_view number = name.substr(star, name.size() - star - tail.size());
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelConfig& model, const OptionNames& names) {
  const Table& table = table_of(model, names);
  if (model.family == "gpt2" && model.head_dim != 0 && model.head_dim * model.heads != model.width)
    refuse("{} = {} of {} = {} are not {} = {} together: a GPT-2 has no such heads in other formats, and a llama may",
           names.heads, model.heads, names.head_dim, model.head_dim, names.width, model.width);
  const auto in_blocks = [](const NameRow& row) { return row.ours.find('*') != std::string_view::npos; };
  const auto first = std::find_if(table.rows.begin(), table.rows.end(), in_blocks);
  const auto last = std::find_if_not(first, table.rows.end(), in_blocks);
  std::vector<HfTensor> tensors;
  for (auto row = table.rows.begin(); row != first; ++row) tensors.push_back(make(*row, table.prefix, 0, model));
  for (std::int64_t block = 0; block < model.layers; ++block)
    for (auto row = first; row != last; ++row) tensors.push_back(make(*row, table.prefix, block, model));
  for (auto row = last; row != table.rows.end(); ++row) tensors.push_back(make(*row, table.prefix, 0, model));
  if (!model.tie_embeddings.value_or(table.tied)) tensors.push_back(make(kHead, "", 0, model));
  return tensors;
}

std::string_view hf_prefix(const ModelConfig& model) { return table_of(model).prefix; }

bool is_hf_buffer(const ModelConfig& model, std::string_view name) {
  const Table& table = table_of(model);
  return std::any_of(table.buffers.begin(), table.buffers.end(),
                     [&](std::string_view pattern) { return matches(name, pattern); });
}

std::string_view hf_head() { return kHead.theirs; }

}  // namespace trireme::io
