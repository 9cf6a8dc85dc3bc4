#include <algorithm>
#include <array>
#include <set>

#include "trireme/core/error.h"
#include "trireme/models/families.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

// What a family chooses by rules of its own where nothing is said; a run's config.toml has what it has come to.
constexpr auto kOwnChoices =
    std::to_array<std::string_view>({"model.kv_heads", "model.head_dim", "model.ffn", "model.tie_embeddings"});

// "layers = 4": a key of [model] without its section.
std::string model_value(const Config& config, const std::string& key) {
  return fmt::format("{} = {}", key.substr(key.find('.') + 1), value_text(config, key));
}

// As it was before anyone set it.
void forget(Config& config, const std::string& key) {
  Config defaults;
  const std::vector<Key> from = keys_of(defaults);
  const std::vector<Key> to = keys_of(config);
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i].name == key) assign(to[i], from_text(to[i], to_text(from[i])));
  config.given.erase(key);
}

bool accepts(const Config& config, const models::Families& families) {
  models::ModelConfig shape = config.model;
  try {
    families.at(config.model.family).resolve(shape, config.names);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The model of `before` with what its family chooses itself chosen anew; as it is where the family refuses that.
Config chosen_anew(const Config& before, const models::Families& families) {
  Config anew = before;
  for (const std::string_view key : kOwnChoices) forget(anew, std::string(key));
  try {
    families.at(before.model.family).resolve(anew.model, anew.names);
  } catch (const Error&) {
    return before;
  }
  return anew;
}

// Where the family refuses a value that the file had for another family: what that was, and that it has to be given.
void check_kept(const Config& config, const Config& before, const std::vector<std::string>& kept,
                const models::Families& families) {
  models::ModelConfig shape = config.model;
  try {
    families.at(config.model.family).resolve(shape, config.names);
  } catch (const Error& e) {
    for (const std::string& value : kept) {
      const std::string key = "model." + value.substr(0, value.find(' '));
      if (!e.message().starts_with(fmt::format("model.{}", value))) continue;
      refuse("{}; the configuration has it for family {}: give {} too", e.message(), before.model.family, key);
    }
    throw;
  }
}

}  // namespace

void change_family(Config& config, const Config& before, const std::set<std::string>& named,
                   const models::Families& families) {
  if (config.model.family == before.model.family) return;
  const Config anew = chosen_anew(before, families);
  const auto is_own_choice = [&](const std::string& key) {
    return std::find(kOwnChoices.begin(), kOwnChoices.end(), key) != kOwnChoices.end() &&
           value_text(before, key) == value_text(anew, key);
  };
  const std::vector<std::string> unused = model_keys_without_effect(config, families);
  const Config defaults;
  std::vector<std::string> kept, chosen, left_out;
  for (const Key& key : keys_of(config, families)) {
    const std::string name = key.name;
    if (key.section() != "model" || name == "model.family" || !before.is_given(name) || named.contains(name)) continue;
    const std::string value = value_text(before, name);
    const bool usual = value == value_text(defaults, name);
    if (std::find(unused.begin(), unused.end(), name) != unused.end()) {
      if (!usual) left_out.push_back(model_value(before, name));
      forget(config, name);
    } else if (is_own_choice(name)) {
      if (!usual) chosen.push_back(name.substr(name.find('.') + 1));
      forget(config, name);
    } else if (!usual || name == "model.layers" || name == "model.width" || name == "model.heads" ||
               name == "model.context") {
      kept.push_back(model_value(before, name));
    }
  }
  // What the family chooses otherwise and cannot have as the file says.
  for (const std::string_view choice : kOwnChoices) {
    const std::string name(choice);
    if (!config.is_given(name) || named.contains(name) || accepts(config, families)) continue;
    Config without = config;
    forget(without, name);
    if (!accepts(without, families)) continue;
    forget(config, name);
    std::erase(kept, model_value(before, name));
    left_out.push_back(model_value(before, name));
  }
  check_kept(config, before, kept, families);
  // Images give way to text that the command line names.
  const bool names_text = named.contains("data.text") || named.contains("data.tokens");
  if (names_text && !families.at(config.model.family).images && !named.contains("data.images") &&
      !config.data.images.empty()) {
    left_out.push_back(fmt::format("data.images = {}", value_text(before, "data.images")));
    forget(config, "data.images");
  }
  if (kept.empty() && chosen.empty() && left_out.empty()) return;
  config.other_family = fmt::format("{} in the place of {}", config.model.family, before.model.family);
  const auto add = [&](const char* what, const std::vector<std::string>& list) {
    if (!list.empty()) config.other_family += fmt::format("; {} {}", what, fmt::join(list, ", "));
  };
  add("kept:", kept);
  add("by the family's own rule:", chosen);
  add("left out:", left_out);
}

}  // namespace trireme::train
