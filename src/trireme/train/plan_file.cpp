#include "trireme/train/plan_file.h"

#include <algorithm>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/device_choice.h"
#include "trireme/train/plan_keys.h"

namespace trireme::train {
namespace {

std::string list_text(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += fmt::format("{}\n  \"{}\"", text.size() > 1 ? "," : "", name);
  return text + (names.empty() ? "]" : "\n]");
}

// More than any state needs stands for "all of it".
bool is_limited(std::size_t staging) { return staging < (std::size_t{1} << 62); }

// The one "auto" that is no question to the machine: it means the same wherever the plan is followed.
constexpr std::string_view kRule = "  # a fixed rule: by transport, ranks and size of each message";
bool is_rule(const Config& config, const Key& key) {
  return key.name == "parallel.allreduce" && config.parallel.allreduce == AllReduce::automatic;
}

// What "auto" has come to, so that another machine compiles the same programs. parallel.allreduce stays (is_rule).
Config resolved(Config config, const Planned& planned) {
  const compiler::Plan& plan = planned.plan;
  const bool cpu = plan.device == device::Kind::cpu;
  config.parallel.mesh = plan.mesh.axes.empty() ? fmt::format("{}=1", ir::kDataAxis) : plan.mesh.str();
  config.runtime.device = cpu ? Device::cpu : Device::cuda;
  config.runtime.overlap_wgrad = plan.overlap_wgrad;
  config.runtime.threads = plan.threads;
  config.train.micro_batch = planned.graphs.micro_rows / plan.mesh.size_of(ir::kDataAxis);
  if (config.output.staging.automatic() && is_limited(plan.staging)) config.output.staging = Bytes(plan.staging);
  if (config.memory.offload_tier == OffloadTier::automatic && plan.offload)
    config.memory.offload_tier = cpu ? OffloadTier::disk : OffloadTier::host;
  return config;
}

// Whether a path, of a plan or of a run folder, is that of the file that was read.
bool is_plan_at(const std::filesystem::path& path, const std::filesystem::path& file) {
  std::error_code unknown;
  return std::filesystem::equivalent(std::filesystem::is_directory(path, unknown) ? path / "plan.toml" : path, file,
                                     unknown);
}

// Refuses what the command line asks for otherwise than the plan does. `planned` has the plan's keys.
void check_overrides(const PlanFile& plan, const Config& planned, std::span<const std::string> overrides,
                     const models::Families& families) {
  Config asked = planned;
  for (const std::string& text : overrides) {
    if (!names_plan_key(text.substr(0, text.find('=')), families)) continue;
    try {
      apply_setting(asked, text, families);
    } catch (Error& e) {
      throw e.within("command line");
    }
  }
  const auto contradicts = [&](std::string_view key, const std::string& value, const std::string& has) {
    refuse("--{}={} contradicts the plan {}, which has {}; leave it out, or edit the plan", key, value,
           plan.decisions.file, has);
  };
  for (const auto& [pattern, sharding] : asked.parallel.sharding) {
    const auto there = planned.parallel.sharding.find(pattern);
    const bool annotated = there != planned.parallel.sharding.end();
    if (!annotated || there->second != sharding)
      contradicts(fmt::format("{}.{}", kShardingKey, pattern), sharding,
                  annotated ? there->second : "no annotation of that pattern");
  }
  for (const std::string& key : differing_keys(planned, asked))
    contradicts(key, value_text(asked, key), value_text(planned, key));
}

constexpr std::string_view kFirstLine =
    "# How this model is trained. `trireme train CONFIG --plan FILE` follows it; names are values and states of the";

}  // namespace

bool names_plan_key(const std::string& name, const models::Families& families) {
  Config config;
  const std::vector<Key> keys = keys_of(config, families);
  return std::any_of(keys.begin(), keys.end(), [&](const Key& key) {
    return is_plan_key(key) && (key.name == name || name.starts_with(key.name + "."));
  });
}

std::string plan_text(const Config& config, const Planned& planned) {
  const compiler::Plan& plan = planned.plan;
  std::string text = std::string(kFirstLine) + "\n# model as `trireme inspect graph` prints them.\n";
  text +=
      fmt::format("model = \"{}\"  # digest of the model that it was made for\n", compiler::digest_of(planned.graphs));
  Config copy = resolved(config, planned);
  std::string section;
  std::string annotations;
  for (const Key& key : keys_of(copy)) {
    if (!is_plan_key(key)) continue;
    if (key.section() != section) text += fmt::format("\n[{}]\n", section = key.section());
    if (key.name != kShardingKey)
      text += fmt::format("{} = {}{}\n", key.leaf(), to_text(key), is_rule(copy, key) ? kRule : "");
    else if (!copy.parallel.sharding.empty())
      annotations = fmt::format("\n[{}]\n{}", kShardingKey, to_text(key));
  }
  text += annotations;  // a table of its own
  text += fmt::format("\n[decisions]\ndevice = \"{}\"\n", plan.device == device::Kind::cpu ? "cpu" : "cuda");
  // A GPU's collectives take no scratch of the plan.
  if (plan.device == device::Kind::cpu && plan.mesh.ranks() > 1)
    text += fmt::format(
        "transport = \"{}\"  # what collectives need of memory goes by it; a run over another has its "
        "own\n",
        comm::name_of(plan.transport));
  if (plan.stages() > 1) text += "stage_cuts = " + list_text(plan.stage_cuts) + "\n";
  if (plan.schedule_given) {
    std::vector<std::string> lines = split(program::to_text(*plan.schedule_given), '\n');
    std::erase(lines, "");
    text += "schedule = " + list_text(lines) + "\n";
  }
  if (plan.recompute) text += "recompute = " + list_text(*plan.recompute) + "\n";
  if (plan.offload) {
    text += "offload_activations = " + list_text(plan.offload->activations) + "\n";
    text += "offload_states = " + list_text(plan.offload->states) + "\n";
    text += "offload_reloads = " + list_text(plan.offload->reloads) + "\n";
  }
  if (plan.staging > 0 && is_limited(plan.staging)) text += fmt::format("staging = {}\n", plan.staging);
  if (!plan.max_held.empty()) text += fmt::format("held = [{}]\n", fmt::join(plan.max_held, ", "));
  return text;
}

bool is_plan(const std::filesystem::path& path) {
  std::error_code unknown;
  std::string line;
  std::ifstream in(path, std::ios::binary);
  return std::filesystem::is_regular_file(path, unknown) && std::getline(in, line) && line == kFirstLine;
}

std::string why_not_followed(const PlanFile& plan, const Config& config, int launched, int local_ranks) {
  Config planned = config;
  for (const std::string& setting : plan.settings) apply_setting(planned, setting);
  for (const std::string& key : differing_keys(planned, config))
    if (const std::string now = value_text(config, key);
        now != "\"auto\"" && !((key == "runtime.threads" || key == "train.micro_batch") && now == "0"))
      return fmt::format("{} was {} and is {}", key, value_text(planned, key), now);
  const int ranks = ranks_of(planned);
  const int now = config.parallel.any_mesh() ? std::max(1, launched) : ranks;
  if (ranks != now) return fmt::format("it is for {} ranks, and these are {}", ranks, now);
  if (device_of(config, local_ranks) != plan.decisions.device)
    return fmt::format("it is for a {}", device::name_of(plan.decisions.device));
  return {};
}

Config load_config_under(const PlanFile& plan, const std::string& source, std::span<const std::string> overrides,
                         const models::Families& families) {
  // Before the values are checked against each other: one that contradicts would be blamed on another.
  Config planned;
  for (const std::string& setting : plan.settings) apply_setting(planned, setting, families);
  check_overrides(plan, planned, overrides, families);
  std::vector<std::string> settings = plan.settings;
  settings.insert(settings.end(), overrides.begin(), overrides.end());
  Config config = [&] {
    try {
      return load_config(source, settings, families);
    } catch (const Error& e) {
      load_config(source, overrides, families);  // what is wrong without the plan is not the plan's
      constexpr std::string_view kPlace = "command line: ";
      const std::string why = e.message().starts_with(kPlace) ? e.message().substr(kPlace.size()) : e.message();
      throw Error(e.kind(), fmt::format("under the plan {}: {}", plan.decisions.file, why));
    }
  }();
  const std::string& file = plan.decisions.file;
  if (config.parallel.plan == Planning::automatic ||
      (config.parallel.plan == Planning::file && !is_plan_at(config.parallel.plan.text(), file)))
    refuse("--plan {} and parallel.plan = {} contradict each other; leave one of them out", file,
           value_text(config, "parallel.plan"));
  // The others are the plan's own: overrides have been compared.
  for (const auto& [pattern, sharding] : config.parallel.sharding)
    if (!planned.parallel.sharding.contains(pattern))
      refuse(
          "{}: parallel.sharding has \"{}\" = \"{}\", and the plan {} has no annotation of that pattern; remove it, or "
          "add it to [{}] of the plan",
          source, pattern, sharding, file, kShardingKey);
  // Of a built-in configuration: what the plan sets was not asked for key by key.
  if (config.builtin)
    config.over_builtin.erase(config.over_builtin.begin(), config.over_builtin.begin() + std::ssize(plan.settings));
  config.parallel.plan = Planning::none;  // it is followed
  return config;
}

Followed load_followed(std::string plan, const std::string& source, std::span<const std::string> overrides,
                       const models::Families& families) {
  if (plan.empty()) {
    Config config = load_config(source, overrides, families);
    if (config.parallel.plan != Planning::file) return {std::move(config)};
    plan = config.parallel.plan.text();
  }
  const PlanFile file = read_plan(plan);
  return {load_config_under(file, source, overrides, families), file.decisions};
}

Followed load_shown(const std::string& plan, const std::string& source, std::span<const std::string> overrides,
                    const models::Families& families) {
  const auto is_gone = [](const Config& config) {
    const program::PipelineName pipeline = program::parse_pipeline(config.parallel.pipeline.text());
    std::error_code unknown;
    return pipeline.kind == program::PipelineName::Kind::file && !std::filesystem::exists(pipeline.path, unknown);
  };
  const bool own = plan.empty() && is_plan(std::filesystem::path(source) / "plan.toml") &&
                   is_gone(load_config(source, overrides, families));
  return load_followed(own ? source : plan, source, overrides, families);
}

}  // namespace trireme::train
