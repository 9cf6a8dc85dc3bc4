#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/data_config.h"
#include "trireme/models/families.h"

namespace trireme::train {

// Written "25MiB" in a configuration.
struct Bytes {
  std::uint64_t count = 0;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// Written "3h50m".
struct Seconds {
  double count = 0;
  friend bool operator==(const Seconds&, const Seconds&) = default;
};

// Every so many steps, or every so often; both zero: never.
struct Interval {
  std::int64_t steps = 0;
  double seconds = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A choice that may carry an argument: "every:4" is {"every", 4}, "none" is {"none", 0}.
struct Choice {
  std::string name;
  double argument = 0;
};
Choice parse_choice(std::string_view text);

struct InitConfig {
  std::string from;
  friend bool operator==(const InitConfig&, const InitConfig&) = default;
};

struct TrainConfig {
  std::int64_t steps = 300;
  std::int64_t batch = 32;
  std::int64_t micro_batch = 0;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double min_lr = 0;
  std::int64_t warmup = 20;
  std::string schedule = "cosine";
  std::int64_t decay_steps = 0;
  double momentum = 0.9;
  std::int64_t eval_every = 0;
  Seconds max_time;  // 0: no limit
  double weight_decay = 0.1;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double clip = 1;
  std::string precision = "f32";
  double loss_scale = 65536;
  std::int64_t loss_scale_window = 2000;
  std::int64_t seed = 1;
  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

struct ParallelConfig {
  std::string mesh = "auto";
  std::vector<std::int64_t> stages;
  std::int64_t zero = 0;
  bool sequence = false;
  std::string pipeline = "1f1b";
  Bytes bucket = {std::uint64_t{25} << 20};
  bool overlap = true;
  std::string allreduce = "auto";
  std::string compress = "none";
  bool error_feedback = true;
  bool momentum_masking = false;
  std::int64_t compress_warmup = 0;  // 0: a quarter of the steps
  std::string server = "none";
  std::int64_t servers = 1;
  Seconds timeout = {60};
  std::map<std::string, std::string> seeds;
  friend bool operator==(const ParallelConfig&, const ParallelConfig&) = default;
};

struct MemoryConfig {
  std::string remat = "none";
  std::string offload = "none";
  std::string offload_policy = "dynamic";
  std::string offload_tier = "auto";
  std::string offload_update = "device";
  std::string offload_dir;  // "": the run folder
  std::string activations = "full";
  Bytes limit;  // 0: what the device has
  friend bool operator==(const MemoryConfig&, const MemoryConfig&) = default;
};

struct RuntimeConfig {
  std::string device = "auto";
  std::int64_t threads = 0;
  std::string transport = "auto";
  std::string link;
  std::string weight_gradients = "auto";
  std::string trace;
  friend bool operator==(const RuntimeConfig&, const RuntimeConfig&) = default;
};

struct OutputConfig {
  std::string dir;
  Interval checkpoint_every = {0, 600};
  std::int64_t keep = 2;
  std::string staging = "auto";
  std::int64_t log_every = 1;
  friend bool operator==(const OutputConfig&, const OutputConfig&) = default;
};

// Everything a run can be told. Values are checked one by one and against each other when a configuration is loaded;
// what needs the model itself is checked when it is built.
struct Config {
  models::ModelConfig model;
  InitConfig init;
  data::DataConfig data;
  TrainConfig train;
  ParallelConfig parallel;
  MemoryConfig memory;
  RuntimeConfig runtime;
  OutputConfig output;

  std::string name = "quickstart";        // of the file or built-in configuration: runs/<name>
  std::string run;                        // the run folder it was read from, unless the command line names another
  std::set<std::string> given;            // keys set by file or command line ("train.lr"); the others are defaults
  bool builtin = false;                   // it started from the built-in configuration of that name
  std::vector<std::string> over_builtin;  // then: the keys that the command line set

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

// Values against each other, and against what this version can do. `load_config` has called it.
void check(const Config& config, const models::Families& families = models::builtin_families());

// Keys that were given, have another value than by default, and change nothing in a run of so many ranks: for each what
// it is for, as in "train.momentum = 0.8 has no effect: it is for train.optimizer = "sgd"".
std::vector<std::string> keys_without_effect(const Config& config, const models::Families& families, int ranks);

// Every key, in order, as TOML that loads back to the same values.
std::string to_toml(const Config& config);
// Keys whose values differ.
std::vector<std::string> differing_keys(const Config& a, const Config& b);
// One key's value as TOML.
std::string value_text(const Config& config, std::string_view key);
// Every key with its default and meaning, as TOML with comments.
std::string describe_config(const models::Families& families = models::builtin_families());
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
