#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/option_names.h"
#include "trireme/data/data_config.h"
#include "trireme/models/families.h"
#include "trireme/train/option_types.h"

namespace trireme::train {

// The sections that options.def declares: their fields, types and defaults.
#define TRI_OPTION(section, name, Type, initial, rule, meaning) option_types::Type name = initial;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) Choice<Type> name = initial;

struct InitConfig {
#define TRI_SECTION_INIT
#include <trireme/options.def>
  friend bool operator==(const InitConfig&, const InitConfig&) = default;
};

struct TrainConfig {
#define TRI_SECTION_TRAIN
#include <trireme/options.def>
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct ParallelConfig {
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_SHARDING
#include <trireme/options.def>
  // Whether the ranks that there are decide the mesh.
  bool any_mesh() const { return mesh == "auto"; }
  friend bool operator==(const ParallelConfig&, const ParallelConfig&) = default;
};

struct MemoryConfig {
#define TRI_SECTION_MEMORY
#include <trireme/options.def>
  friend bool operator==(const MemoryConfig&, const MemoryConfig&) = default;
};

struct PruneConfig {
#define TRI_SECTION_PRUNE
#include <trireme/options.def>
  friend bool operator==(const PruneConfig&, const PruneConfig&) = default;
};

struct DistilConfig {
#define TRI_SECTION_DISTIL
#include <trireme/options.def>
  friend bool operator==(const DistilConfig&, const DistilConfig&) = default;
};

struct RuntimeConfig {
#define TRI_SECTION_RUNTIME
#include <trireme/options.def>
  friend bool operator==(const RuntimeConfig&, const RuntimeConfig&) = default;
};

struct OutputConfig {
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>
  friend bool operator==(const OutputConfig&, const OutputConfig&) = default;
};

#undef TRI_OPTION
#undef TRI_CHOICE

// The options as files and the command line name them: "model.context".
constexpr OptionNames key_names() {
  OptionNames names;
#define TRI_OPTION(section, name, Type, initial, rule, meaning) names.name = #section "." #name;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) names.name = #section "." #name;
#define TRI_SECTION_MODEL
#define TRI_SECTION_DATA
#define TRI_SECTION_MEMORY
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
  return names;
}

// All options of a run. Values are checked one by one and against each other when a configuration is loaded;
// what needs the model itself is checked when it is built.
struct Config {
  models::ModelConfig model;
  InitConfig init;
  data::DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  MemoryConfig memory;
  PruneConfig prune;
  DistilConfig distil;
  RuntimeConfig runtime;
  OutputConfig output;

  OptionNames names = key_names();        // what messages of data, models and weights call these
  std::string name = "quickstart";        // of the file or built-in configuration: runs/<name>
  std::string run;                        // the run folder it was read from, unless the command line names another
  std::set<std::string> given;            // keys set by file or command line ("train.lr"); the others are defaults
  bool builtin = false;                   // it started from the built-in configuration of that name
  std::vector<std::string> over_builtin;  // then: the keys that the command line set
  // Where the command line names another model.family than the file: what became of the file's other keys of [model].
  std::string other_family;

  bool is_given(const std::string& key) const { return given.contains(key); }
  // Whether a model or data of one's own was named over a built-in configuration.
  bool has_own_subject() const;
};

// `source` is a TOML file, a folder that holds config.toml (a run) or config.json (a Hugging Face model, which becomes
// init.from and gives the shape of the model and its tokenizer), or the name of a built-in configuration, whose ranks
// and ZeRO stand only as long as its model and data do. Overrides are "train.lr=1e-3", applied in order over the file.
// Refuses (Error::Kind::request) with file and line, what was expected, and the nearest valid name or value. `families`
// are those that model.family may name.
Config load_config(const std::string& source, std::span<const std::string> overrides = {},
                   const models::Families& families = models::builtin_families());
// The same from text; `file` names it in errors.
Config parse_config(std::string_view toml, const std::string& file, std::span<const std::string> overrides = {},
                    const models::Families& families = models::builtin_families());

// Sets one key: "train.lr=1e-3". Refuses as `load_config` does; what keys say together is for `check`.
void apply_setting(Config& config, const std::string& setting,
                   const models::Families& families = models::builtin_families());

// Takes "--section.key=value" and "--section.key value" out of `arguments` and gives them as "section.key=value". Other
// arguments stay, except that a flag known as another system's name for a key ("--learning_rate") is refused, unless it
// is among `options`: those that a command has itself.
std::vector<std::string> take_overrides(std::vector<std::string>& arguments, std::span<const std::string> options = {});

// Refuses settings ("train.lr=1e-3") whose key there is not, with the nearest.
void check_names(std::span<const std::string> settings);

// Values against each other, and against what this version can do. `load_config` has called it.
void check(const Config& config, const models::Families& families = models::builtin_families());

// Keys that were given, have another value than by default, and change nothing in a run of so many ranks: for each what
// it is for, as in "train.momentum = 0.8 has no effect: it is for train.optimizer = "sgd"". `processes`: ranks are not
// threads of one process.
std::vector<std::string> keys_without_effect(const Config& config, const models::Families& families, int ranks,
                                             bool processes = false);

// Every key, in order, as TOML that loads back to the same values.
std::string to_toml(const Config& config);
// Keys whose values differ.
std::vector<std::string> differing_keys(const Config& a, const Config& b);
// One key's value as TOML.
std::string value_text(const Config& config, std::string_view key);
// Every key with its default and meaning, as TOML with comments.
std::string describe_config(const models::Families& families = models::builtin_families());
// The same as a page of Markdown: docs/options.md.
std::string reference_page(const models::Families& families = models::builtin_families());
// Every key with its default and meaning, in the order of the table.
struct KeyText {
  std::string name;
  std::string value;
  std::string meaning;
};
std::vector<KeyText> key_texts();
// The page of what other systems call the keys, docs/names.md.
std::string names_page();
// The key a person most likely means by `name` ("learning_rate" → "train.lr"), or nothing.
std::optional<std::string> suggest_key(std::string_view name);

// Configurations to start from, as TOML.
struct Builtin {
  std::string_view name;
  std::string_view summary;
  std::string_view toml;
};
std::span<const Builtin> builtin_configs();

}  // namespace trireme::train
