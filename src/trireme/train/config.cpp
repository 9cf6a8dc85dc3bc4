#include "trireme/train/config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trireme/core/error.h"
#include "trireme/core/json.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/io/checkpoint_manifest.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/compression.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/gguf.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSharding = "parallel.sharding";

const Key* find_key(const std::vector<Key>& keys, std::string_view name) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

// The same name was not a section or key either.
[[noreturn]] void unknown_key(const std::vector<Key>& keys, const std::string& name) {
  if (const auto now = renamed(name)) refuse("{} is now called {}", name, *now);
  std::vector<std::string> sections;
  for (const Key& key : keys)
    if (sections.empty() || sections.back() != key.section()) sections.push_back(key.section());
  const std::size_t dot = name.find('.');
  const std::string section = name.substr(0, dot);
  if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
    // A misspelt section: the key in it may be right.
    if (const auto near = nearest(section, sections)) {
      const std::string corrected = *near + (dot == std::string::npos ? "" : name.substr(dot));
      if (dot == std::string::npos) refuse("unknown section [{}]; did you mean [{}]?", name, *near);
      if (find_key(keys, corrected) != nullptr) refuse("unknown key {}; did you mean {}?", name, corrected);
    }
  } else if (dot == std::string::npos) {
    refuse("{} is a section, not a key", name);
  }
  const std::string hint = hint_for(name);
  refuse("unknown key {}{}", name, hint.empty() ? "; `trireme config` lists them all" : hint);
}

void set(Config& config, const std::vector<Key>& keys, const std::string& name, const Raw& value) {
  const Key* key = find_key(keys, name);
  // An empty section is nothing to complain about.
  if (key == nullptr && std::holds_alternative<Raw::Table>(value.value) && std::get<Raw::Table>(value.value).empty())
    for (const Key& other : keys)
      if (other.section() == name) return;
  if (key == nullptr) unknown_key(keys, name);
  assign(*key, current_value(name, value));
  config.given.insert(key->name);
}

void apply_override(Config& config, const std::vector<Key>& keys, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos) refuse("--{} needs a value: --{}=…", name, name);
  const std::string value = text.substr(equals + 1);
  if (name.starts_with(std::string(kSharding) + ".")) {
    // The name may be in quotes, as a file has it.
    std::string pattern = name.substr(kSharding.size() + 1);
    const bool quoted = pattern.size() > 1 && pattern.front() == pattern.back();
    if (quoted && (pattern.front() == '"' || pattern.front() == '\'')) pattern = pattern.substr(1, pattern.size() - 2);
    const Raw::Table one = {{pattern, Raw{value}}};
    return set(config, keys, std::string(kSharding), Raw{one});
  }
  const Key* key = find_key(keys, name);
  if (key == nullptr) unknown_key(keys, name);
  set(config, keys, name, from_text(*key, value));
}

}  // namespace

void check_names(std::span<const std::string> settings) {
  Config defaults;
  const std::vector<Key> keys = keys_of(defaults);
  for (const std::string& setting : settings) {
    const std::string name = setting.substr(0, setting.find('='));
    if (name.starts_with(std::string(kSharding) + ".") || find_key(keys, name) != nullptr) continue;
    try {
      unknown_key(keys, name);
    } catch (Error& e) {
      throw e.within("command line");
    }
  }
}

void apply_setting(Config& config, const std::string& setting, const models::Families& families) {
  apply_override(config, keys_of(config, families), setting);
}

namespace {

// "model.layers=6" → "model.layers"
std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

// Where the model's shape is: in the entries, or with init.from in the folder it names. A run's own config.toml is
// complete, and the folder it once started from may be gone.
enum class ShapeFrom { folder, entries };

bool names_folder(std::span<const std::string> overrides) {
  return std::any_of(overrides.begin(), overrides.end(), [](const auto& o) { return o.starts_with("output.dir="); });
}

Config build(const std::vector<Entry>& entries, const std::string& file, const std::string& name,
             std::span<const std::string> overrides, const models::Families& families,
             ShapeFrom shape_from = ShapeFrom::folder, const OptionNames& names = key_names(),
             const std::string& run = {});

// Whether a file is right by itself: what is wrong together with the command line is the command line's.
bool is_right_alone(const std::vector<Entry>& entries, const models::Families& families, ShapeFrom shape_from) {
  try {
    build(entries, "", "", {}, families, shape_from);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A folder that holds a tokenizer stands for its file, which is what a run keeps the name of.
void name_tokenizer_file(Config& config) {
  std::error_code unknown;
  std::string& name = config.data.tokenizer;
  if (name != "bytes" && name != "none" && fs::is_directory(name, unknown))
    name = data::tokenizer_file(name).value_or(name);
}

Config build(const std::vector<Entry>& entries, const std::string& file, const std::string& name,
             std::span<const std::string> overrides, const models::Families& families, ShapeFrom shape_from,
             const OptionNames& names, const std::string& run) {
  Config config;
  config.names = names;
  config.name = name;
  config.run = run;
  const std::vector<Key> keys = keys_of(config, families);
  for (const Entry& entry : entries) try {
      set(config, keys, entry.key, entry.value);
    } catch (Error& e) {
      if (file.empty()) throw;
      throw e.within(fmt::format("{}:{}", file, entry.line));
    }
  Config before = config;
  std::set<std::string> named;
  for (const std::string& text : overrides) try {
      apply_override(config, keys, text);
      named.insert(key_of(text));
    } catch (Error& e) {
      throw e.within("command line");
    }
  drop_replaced_compression(config, before, named);
  try {
    if (config.init.from.empty() || shape_from == ShapeFrom::entries) change_family(config, before, named, families);
    if (!config.init.from.empty() && shape_from == ShapeFrom::folder) adopt_folder(config, families);
    name_tokenizer_file(config);
    check(config, families);
  } catch (Error& e) {
    if (file.empty()) throw;
    throw e.within(!overrides.empty() && is_right_alone(entries, families, shape_from) ? "command line" : file);
  }
  return config;
}

// What shows several ranks on a small model is not meant for others, nor for another mesh; the shape of a model that is
// loaded is its own, and image files say theirs.
Config build_over(const Builtin& builtin, std::span<const std::string> overrides, const models::Families& families) {
  Config named;
  for (const std::string& text : overrides) named.over_builtin.push_back(key_of(text));
  const auto& keys = named.over_builtin;
  const bool loads = std::find(keys.begin(), keys.end(), "init.from") != keys.end();
  const bool reads_images = std::any_of(overrides.begin(), overrides.end(), [](const std::string& text) {
    return text.starts_with("data.images=") && text != "data.images=synthetic";
  });
  const auto of_images = [](const std::string& key) {
    return key == "model.image" || key == "model.channels" || key == "model.classes";
  };
  std::vector<Entry> entries = read_toml(builtin.toml, std::string(builtin.name));
  const bool shows_ranks =
      std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.key == "parallel.mesh"; });
  const bool other_mesh = std::find(keys.begin(), keys.end(), "parallel.mesh") != keys.end();
  const auto of_ranks = [&](const std::string& key) {
    return key.starts_with("parallel.") || (shows_ranks && key == "train.micro_batch");
  };
  std::erase_if(entries, [&](const Entry& entry) {
    return ((named.has_own_subject() || other_mesh) && of_ranks(entry.key)) || (reads_images && of_images(entry.key)) ||
           (loads && (entry.key.starts_with("model.") || entry.key.starts_with("data.")));
  });
  Config config = build(entries, "", std::string(builtin.name), overrides, families);
  config.builtin = true;
  config.over_builtin = keys;
  return config;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "runs/one/", "runs/one" and a link to it are all "one".
std::string folder_name(const std::string& path) { return fs::canonical(path).filename().string(); }

}  // namespace

bool Config::has_own_subject() const {
  return std::any_of(over_builtin.begin(), over_builtin.end(), [](const std::string& key) {
    return key.starts_with("model.") || key.starts_with("data.") || key.starts_with("init.");
  });
}

std::vector<Entry> read_run_toml(std::string_view toml, const std::string& file) {
  std::vector<Entry> entries = read_toml(toml, file);
  for (Entry& entry : entries) entry.key = renamed(entry.key).value_or(entry.key);
  return entries;
}

Config make_config(const std::vector<Entry>& entries, const std::string& name, const models::Families& families,
                   const OptionNames& names) {
  return build(entries, "", name, {}, families, ShapeFrom::folder, names);
}

Config parse_config(std::string_view toml, const std::string& file, std::span<const std::string> overrides,
                    const models::Families& families) {
  return build(read_toml(toml, file), file, fs::path(file).stem().string(), overrides, families);
}

namespace {

// Where a path leads that was written in another folder; as it is where there is nothing, or where it is a word that
// stands for something else.
std::string path_from(const fs::path& folder, const std::string& text) {
  if (text.empty() || fs::path(text).is_absolute() || text == "synthetic" || text == "bytes" || text == "none")
    return text;
  std::string there = text.substr(0, text.rfind('@'));  // a mixing weight may follow
  if (const std::size_t glob = there.find_first_of("*?["); glob != std::string::npos)
    there = there.substr(0, there.find_last_of('/', glob) + 1);
  std::error_code unknown;
  if (!fs::exists(folder / there, unknown) && !fs::exists(folder / text, unknown)) return text;
  return (folder / text).lexically_normal().string();
}

void follow_paths(std::vector<Entry>& entries, const fs::path& run) {
  constexpr std::array<std::string_view, 7> kPaths = {"data.text",      "data.tokens", "data.images",   "data.eval",
                                                      "data.tokenizer", "init.from",   "distil.teacher"};
  std::ifstream file(run / "run.json");
  const auto json = parse_json(file);
  if (!json.is_object() || !json.contains("folder") || !json["folder"].is_string()) return;
  const fs::path folder = json["folder"].get<std::string>();
  std::error_code unknown;
  if (folder.empty() || fs::equivalent(folder, fs::current_path(unknown), unknown)) return;
  for (Entry& entry : entries) {
    if (std::find(kPaths.begin(), kPaths.end(), entry.key) == kPaths.end()) continue;
    if (auto* text = std::get_if<std::string>(&entry.value.value)) *text = path_from(folder, *text);
    if (auto* list = std::get_if<Raw::List>(&entry.value.value))
      for (Raw& item : *list)
        if (auto* text = std::get_if<std::string>(&item.value)) *text = path_from(folder, *text);
  }
}

}  // namespace

namespace {

// Of a run: its config.toml or, where that is lost or empty, the copy in its newest checkpoint that has one.
std::string run_configuration(const fs::path& run) {
  std::error_code unknown;
  const fs::path file = run / "config.toml";
  const bool lost = !fs::exists(file, unknown);
  std::string text = lost ? "" : read_file(file);
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) return text;
  for (const std::int64_t step : checkpoint_steps(run)) try {
      if (std::string copy = io::read_manifest(checkpoint_folder(run, step)).config; !copy.empty()) return copy;
    } catch (const Error&) {
      continue;  // a damaged one is reported where checkpoints are looked for
    }
  if (lost || fs::exists(run / "metrics.jsonl", unknown))
    refuse(
        "{} is {}, and no checkpoint of the run has a copy; `trireme train` with its configuration and --overwrite "
        "starts over",
        file.string(), lost ? "lost" : "empty");
  return text;
}

}  // namespace

Config load_run_config(const std::string& source, std::span<const std::string> overrides,
                       const models::Families& families, RunPaths paths) {
  const fs::path file = fs::path(source) / "config.toml";
  std::vector<Entry> entries = read_run_toml(run_configuration(source), file.string());
  if (paths == RunPaths::where_started) follow_paths(entries, source);
  Config config = build(entries, file.string(), folder_name(source), overrides, families, ShapeFrom::entries,
                        key_names(), names_folder(overrides) ? "" : source);
  // A run that began with a folder's tokenizer keeps a copy, for when the folder is gone.
  std::error_code unknown;
  const fs::path kept = fs::path(source) / fs::path(config.data.tokenizer).filename();
  if (config.data.tokenizer.ends_with(".json") && !fs::exists(config.data.tokenizer, unknown) &&
      fs::exists(kept, unknown))
    config.data.tokenizer = kept.string();
  return config;
}

namespace {

// TOML files and folders with a configuration where `path` would be, as they would be named.
std::vector<std::string> configurations_near(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  std::vector<std::string> found;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent.empty() ? "." : parent, unknown))
    if (entry.path().extension() == ".toml" || fs::exists(entry.path() / "config.toml", unknown) ||
        fs::exists(entry.path() / "config.json", unknown))
      found.push_back((parent / entry.path().filename()).string());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Config load_config(const std::string& source, std::span<const std::string> overrides,
                   const models::Families& families) {
  std::error_code unknown;
  if (fs::is_directory(source, unknown)) {
    if (fs::exists(fs::path(source) / "config.toml", unknown)) return load_run_config(source, overrides, families);
    if (fs::exists(fs::path(source) / "config.json", unknown)) {
      std::vector<std::string> all = {"init.from=" + source};
      all.insert(all.end(), overrides.begin(), overrides.end());
      return build({}, "", folder_name(source), all, families);
    }
    if (fs::exists(fs::path(source) / "metrics.jsonl", unknown) || !checkpoint_steps(source).empty())
      return load_run_config(source, overrides, families);
    refuse("{} is neither a run folder (no config.toml) nor a Hugging Face folder (no config.json)", source);
  }
  if (is_gguf(source))
    refuse("{} is a GGUF file; `trireme import {} RUN` makes a run folder of it, which this command takes", source,
           source);
  if (fs::exists(source, unknown)) return parse_config(read_file(source), source, overrides, families);
  std::vector<std::string> names;
  for (const Builtin& builtin : builtin_configs()) {
    if (builtin.name == source) return build_over(builtin, overrides, families);
    names.emplace_back(builtin.name);
  }
  const std::vector<std::string> files = configurations_near(source);
  names.insert(names.end(), files.begin(), files.end());
  const auto near = nearest(source, names);
  names.resize(names.size() - files.size());
  refuse("there is no configuration {}; built in: {}{}", source, fmt::join(names, ", "),
         near ? "; did you mean " + *near + "?" : "");
}

std::vector<std::string> take_overrides(std::vector<std::string>& arguments, std::span<const std::string> options) {
  std::vector<std::string> overrides;
  std::vector<std::string> rest;
  Config defaults;
  const std::vector<Key> keys = keys_of(defaults);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string name =
        argument.starts_with("--") ? argument.substr(2, equals == std::string::npos ? equals : equals - 2) : "";
    const std::string key_part = name.starts_with(std::string(kSharding) + ".") ? std::string(kSharding) : name;
    if (name.find('.') == std::string::npos) {
      const bool known = name.empty() || std::find(options.begin(), options.end(), name) != options.end();
      if (const auto why = known ? std::nullopt : why_absent(name)) refuse("unknown option --{}; {}", name, *why);
      if (const auto meant = known ? std::nullopt : foreign_name(name))
        refuse("unknown option --{}; did you mean --{}?", name, *meant);
      rest.push_back(argument);
      continue;
    }
    if (equals != std::string::npos) {
      overrides.push_back(argument.substr(2));
      continue;
    }
    const Key* key = find_key(keys, key_part);
    const bool flag = key != nullptr && std::holds_alternative<bool*>(key->field);
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (key != nullptr && !flag && !value_follows) refuse("--{} needs a value: {}", name, expectation(*key));
    if (flag && (!value_follows || (arguments[i + 1] != "true" && arguments[i + 1] != "false")))
      overrides.push_back(name + "=true");
    else if (value_follows)
      overrides.push_back(name + "=" + arguments[++i]);
    else
      overrides.push_back(name + "=");  // unknown: refused by name when the configuration is loaded
  }
  arguments = std::move(rest);
  return overrides;
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string text;
  std::string section;
  for (const Key& key : keys_of(copy)) {
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    if (key.name != kSharding)
      text += fmt::format("{} = {}\n", key.leaf(), to_text(key));
    else if (!config.parallel.sharding.empty())
      text += fmt::format("\n[{}]\n{}", kSharding, to_text(key));
  }
  return text;
}

std::vector<std::string> differing_keys(const Config& a, const Config& b) {
  Config one = a;
  Config other = b;
  const std::vector<Key> left = keys_of(one);
  const std::vector<Key> right = keys_of(other);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (to_text(left[i]) != to_text(right[i])) names.push_back(left[i].name);
  return names;
}

std::string value_text(const Config& config, std::string_view key) {
  Config copy = config;
  const std::vector<Key> keys = keys_of(copy);
  const Key* found = find_key(keys, key);
  TRI_CHECK(found != nullptr, "no key {}", key);
  return to_text(*found);
}

std::string describe_config(const models::Families& families) {
  constexpr std::size_t column = 34;
  Config defaults;
  std::string text;
  std::string section;
  for (const Key& key : keys_of(defaults, families)) {
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    std::string line =
        key.name == kSharding ? fmt::format("[{}]", kSharding) : fmt::format("{} = {}", key.leaf(), to_text(key));
    line.resize(std::max(line.size() + 1, column), ' ');
    const std::string choices =
        key.rule.choices.empty() ? "" : fmt::format("{} · ", fmt::join(key.rule.choices, " | "));
    text += fmt::format("{}# {}{}\n", line, choices, key.meaning);
  }
  return text;
}

}  // namespace trireme::train
