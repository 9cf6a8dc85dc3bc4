#include <algorithm>
#include <array>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/io/hf_config.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

// What a folder fixes. The others say how to train (dropout, context) or how weights that are not loaded would start.
constexpr auto kFixed = std::to_array<std::string_view>({
    "model.family",
    "model.layers",
    "model.width",
    "model.heads",
    "model.kv_heads",
    "model.head_dim",
    "model.ffn",
    "model.vocab",
    "model.tie_embeddings",
    "model.norm_eps",
});

bool is_fixed(const std::string& key, const models::ModelConfig& theirs) {
  if (key.starts_with("model.rope_")) return theirs.family == "llama";
  return std::find(kFixed.begin(), kFixed.end(), key) != kFixed.end();
}

// "0" and "auto" leave the choice open.
bool leaves_open(const std::string& value) { return value == "0" || value == "\"auto\""; }

}  // namespace

void adopt_folder(Config& config, const models::Families& families) {
  const std::string& folder = config.init.from;
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown)) refuse("init.from = \"{}\": there is no such folder", folder);
  if (!std::filesystem::exists(std::filesystem::path(folder) / "config.json", unknown))
    refuse("init.from = \"{}\": not a Hugging Face folder (no config.json)", folder);
  Config theirs = config;
  theirs.model = io::read_hf_config(folder).model;
  theirs.model.dropout = config.model.dropout;
  theirs.model.document_end = config.model.document_end;
  if (config.is_given("model.max_context")) theirs.model.max_context = config.model.max_context;
  if (config.is_given("model.init_std")) theirs.model.init_std = config.model.init_std;
  if (config.is_given("model.context")) {
    if (config.model.context > theirs.model.context)
      refuse("{} = {}, but {}/config.json has {} positions; give at most that", config.names.context,
             config.model.context, folder, theirs.model.context);
    // A Llama has no weights of its positions: it still knows those that training leaves out.
    if (theirs.model.family == "llama" && config.model.context < theirs.model.context && theirs.model.max_context == 0)
      theirs.model.max_context = theirs.model.context;
    theirs.model.context = config.model.context;
  }
  const std::vector<Key> keys = keys_of(theirs, families);
  for (const Key& key : keys) {
    if (!config.is_given(key.name) || !is_fixed(key.name, theirs.model)) continue;
    const std::string mine = value_text(config, key.name);
    const std::string other = to_text(key);
    if (mine != other && !leaves_open(mine))
      refuse("{} = {}, but init.from has {} ({}/config.json); leave the key out or name another folder", key.name, mine,
             other, folder);
  }
  config.model = theirs.model;
  // The tokens that the weights know; they are never bytes.
  if (!config.is_given("data.tokenizer")) config.data.tokenizer = data::tokenizer_file(folder).value_or("none");
}

}  // namespace trireme::train
