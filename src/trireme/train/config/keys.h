#pragma once
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/train/config.h"

namespace trireme::train {

// A Choice, whatever its enumeration.
struct ChoiceField {
  void* choice = nullptr;
  bool (*assign)(void* choice, std::string_view text) = nullptr;  // false: it is none of the names
  std::string (*text)(const void* choice) = nullptr;
};
using Field = std::variant<std::int64_t*, double*, bool*, std::optional<bool>*, std::string*, std::vector<std::string>*,
                           std::vector<std::int64_t>*, std::array<double, 2>*, Bytes*, AutoBytes*, Seconds*, Interval*,
                           OffloadSet*, std::map<std::string, std::string>*, ChoiceField>;

// What values a key takes, beyond its type.
struct Rule {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;                 // low itself is not allowed
  bool below_high = false;                // nor is high
  std::vector<std::string> choices = {};  // names of the values, as options.def declares them
  // Text of a form of its own; `expects` says which.
  bool (*valid)(std::string_view) = nullptr;
  std::string_view expects = {};
  // What is wrong with a text that is not valid: "; axis tp is named twice". Empty: no more is known.
  std::string (*fault)(std::string_view) = nullptr;
};

// One key of the configuration, bound to its field in one Config. Its default is what a fresh Config holds.
struct Key {
  std::string name;  // "train.lr"
  Field field;
  Rule rule;
  std::string meaning;

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string leaf() const { return name.substr(name.find('.') + 1); }
};

// Every key, section by section, as options.def declares it.
std::vector<Key> keys_of(Config& config, const models::Families& families = models::builtin_families());

// A value as it was written, before it is known to fit.
struct NamedRaw;
struct Raw {
  using List = std::vector<Raw>;
  using Table = std::vector<NamedRaw>;
  std::variant<bool, std::int64_t, double, std::string, List, Table> value;

  std::string shown() const;  // for messages: 12, "fast", [1, 2]
};
struct NamedRaw {
  std::string name;
  Raw value;
};

// Sets the key's field; refuses a value that does not fit ("train.lr must be a positive number, got "fast"").
void assign(const Key& key, const Raw& raw);
// What a command line's text means for this key.
Raw from_text(const Key& key, std::string_view text);
// The field's value as TOML.
std::string to_text(const Key& key);
// The same for messages: a table as {"a" = "b", "c" = "d"}.
std::string in_one_line(std::string value);
// "a positive number", "one of f32, bf16"
std::string expectation(const Key& key);

// "; did you mean train.lr?" for a name that is no key, knowing other systems' names; "" when nothing is near.
std::string hint_for(std::string_view name);
// The value that a person most likely means by one that the key does not take: of other systems, or misspelt.
std::optional<std::string> meant_value(const Key& key, const std::string& given);
// What a key is called now, for the name it had before ("parallel.seeds.a" → "parallel.sharding.a"); else nothing.
std::optional<std::string> renamed(std::string_view key);
// A value whose words have changed, in the words of now.
Raw current_value(std::string_view key, const Raw& value);
// The key (and a value, if the name implies one) that another system's name stands for, as it is written on a command
// line: fp16 → train.precision=fp16.
std::optional<std::string> foreign_name(std::string_view name);
// Of a name that other systems have for what is not here: that it is not, and what there is instead.
std::optional<std::string> why_absent(std::string_view name);

// A TOML text as a flat list of keys in the order of the file. Refuses text that is no TOML, with its line.
struct Entry {
  std::string key;
  Raw value;
  int line = 0;
};
std::vector<Entry> read_toml(std::string_view toml, const std::string& file);
// Entries of a file that the program wrote into a run folder, perhaps before keys got other names: in the names of now.
std::vector<Entry> read_run_toml(std::string_view toml, const std::string& file);

// The configuration of a run folder. Relative paths of it are so to where the run was started, which run.json says; as
// written: left alone.
enum class RunPaths { where_started, as_written };
Config load_run_config(const std::string& folder, std::span<const std::string> overrides,
                       const models::Families& families, RunPaths paths = RunPaths::where_started);

// The parts of `check` that concern ranks which use a trained model: those along tp have as many heads each, and where
// they compute whole samples with parallel.sequence, as many positions.
void check_heads(const Config& config, const models::Families& families = models::builtin_families());
void check_positions(const Config& config, const models::Families& families = models::builtin_families());

// The command line has named another family than the file, whose configuration was `before`. Keys of [model] that the
// command line did not name (`named`) are kept where the family reads them; those that it does not read, and those that
// the other family had chosen by its own rules, are as if they had not been given; so is data.images where a family of
// text has data.text or data.tokens named. config.other_family says which. Refuses a value that is kept and that the
// family cannot have.
void change_family(Config& config, const Config& before, const std::set<std::string>& named,
                   const models::Families& families);

// The keys of [model] that were given and that the family does not read, whatever their value.
std::vector<std::string> model_keys_without_effect(const Config& config, const models::Families& families);

// The keys that keys_without_effect may name, in some configuration.
std::vector<std::string> keys_with_conditions();

// A configuration from values given in code: a file's rules and refusals, without a place to name. `names` are what the
// program calls the options.
Config make_config(const std::vector<Entry>& entries, const std::string& name,
                   const models::Families& families = models::builtin_families(),
                   const OptionNames& names = key_names());

// Takes the model's shape, and the tokenizer unless one was given, from the Hugging Face folder that init.from names.
// Refuses a key of [model] that was given and says otherwise; model.context may be smaller than the folder's.
void adopt_folder(Config& config, const models::Families& families);

// Mesh axes as written: "pp=2,dp=*" → {pp, 2}, {dp, 0}; nothing when malformed. "auto" and "" have none.
std::optional<std::vector<std::pair<std::string, std::int64_t>>> parse_mesh_axes(std::string_view text);

}  // namespace trireme::train
