// Plans as text: which keys they have, and how they are read.
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/plan_keys.h"

namespace trireme::train {

bool is_plan_key(const Key& key) {
  constexpr std::array<std::string_view, 6> more = {"train.micro_batch", "train.precision",       "runtime.device",
                                                    "runtime.threads",   "runtime.overlap_wgrad", "output.staging"};
  if (key.name == "parallel.timeout" || key.name == "parallel.plan" || key.name == "memory.offload_dir") return false;
  return key.section() == "parallel" || key.section() == "memory" ||
         std::find(more.begin(), more.end(), key.name) != more.end();
}

namespace {

const std::vector<std::string> kDecisions = {"device",         "transport",      "recompute", "offload_activations",
                                             "offload_states", "staging",        "held",      "stage_cuts",
                                             "schedule",       "offload_reloads"};

comm::TransportKind transport_named(const Entry& entry, const std::string& file) {
  using comm::TransportKind;
  const auto* name = std::get_if<std::string>(&entry.value.value);
  for (const TransportKind kind : {TransportKind::threads, TransportKind::emulated, TransportKind::mpi})
    if (name != nullptr && *name == comm::name_of(kind)) return kind;
  refuse("{}:{}: decisions.transport must be \"threads\", \"emulated\" or \"mpi\", got {}", file, entry.line,
         entry.value.shown());
}

std::vector<std::string> names_of(const Entry& entry, const std::string& file) {
  const auto* list = std::get_if<Raw::List>(&entry.value.value);
  std::vector<std::string> names;
  for (const Raw& item : list == nullptr ? Raw::List{} : *list)
    if (const auto* name = std::get_if<std::string>(&item.value)) names.push_back(*name);
  if (list == nullptr || names.size() != list->size())
    refuse("{}:{}: {} must be a list of names, got {}", file, entry.line, entry.key, entry.value.shown());
  return names;
}

// A number of micro-batches for all stages, or a list with one for each.
std::vector<int> held_of(const Entry& entry, const std::string& file) {
  const auto* list = std::get_if<Raw::List>(&entry.value.value);
  std::vector<int> numbers;
  for (const Raw& item : list == nullptr ? Raw::List{entry.value} : *list) {
    const auto* number = std::get_if<std::int64_t>(&item.value);
    if (number == nullptr || *number < 1 || *number > std::numeric_limits<int>::max())
      refuse(
          "{}:{}: decisions.held must be a number of micro-batches above zero, or a list with one for each stage, got "
          "{}",
          file, entry.line, entry.value.shown());
    numbers.push_back(static_cast<int>(*number));
  }
  if (numbers.empty())
    refuse(
        "{}:{}: decisions.held is an empty list; give a number of micro-batches for each stage or one for all, or "
        "remove it",
        file, entry.line);
  return numbers;
}

// What output.staging asks for is what was decided, in whole blocks. Refuses a plan that has two, naming both.
void check_staging(const AutoBytes& asked, std::size_t decided, int line, const std::string& file) {
  if (line == 0 || asked.automatic()) return;
  const auto blocks = [](std::size_t bytes) { return std::max<std::size_t>(1, bytes / io::kStagingAlignment); };
  if (blocks(asked.size->count) != blocks(decided))
    refuse(
        "{}:{}: decisions.staging = {} and output.staging = \"{}B\" contradict each other; give both the same value, "
        "or remove decisions.staging",
        file, line, decided, asked.size->count);
}

}  // namespace

PlanFile read_plan(const std::filesystem::path& given, PlanKeys whole) {
  std::error_code unknown;
  const bool run = std::filesystem::is_directory(given, unknown);
  const std::filesystem::path path = run ? given / "plan.toml" : given;
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse("the plan {} cannot be read", path.string());
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const bool of_run = std::filesystem::exists(path.parent_path() / "config.toml", unknown);
  return parse_plan(text, path.string(), whole, of_run);
}

PlanFile parse_plan(std::string_view text, const std::string& file, PlanKeys whole, bool of_run) {
  PlanFile plan;
  plan.decisions.file = file;
  plan.decisions.staging = std::size_t{1} << 62;
  std::set<std::string> named;
  int staging_line = 0;
  Config any;
  const std::vector<Key> keys = keys_of(any);
  for (const Entry& entry : of_run ? read_run_toml(text, file) : read_toml(text, file)) {
    const std::string name = entry.key.starts_with("decisions.") ? entry.key.substr(10) : "";
    if (entry.key == "model" && std::holds_alternative<std::string>(entry.value.value)) {
      plan.decisions.model = std::get<std::string>(entry.value.value);
    } else if (name == "device" && std::holds_alternative<std::string>(entry.value.value)) {
      const std::string& device = std::get<std::string>(entry.value.value);
      if (device != "cpu" && device != "cuda")
        refuse("{}:{}: decisions.device must be \"cpu\" or \"cuda\", got \"{}\"", file, entry.line, device);
      plan.decisions.device = device == "cpu" ? device::Kind::cpu : device::Kind::cuda;
      named.insert(entry.key);
    } else if (name == "transport") {
      plan.decisions.transport = transport_named(entry, file);
    } else if (name == "recompute") {
      plan.decisions.recompute = names_of(entry, file);
    } else if (name == "stage_cuts") {
      plan.decisions.stage_cuts = names_of(entry, file);
    } else if (name == "schedule") {
      plan.decisions.schedule = names_of(entry, file);
    } else if (name == "offload_activations") {
      plan.decisions.offload_activations = names_of(entry, file);
    } else if (name == "offload_states") {
      plan.decisions.offload_states = names_of(entry, file);
    } else if (name == "offload_reloads") {
      plan.decisions.offload_reloads = names_of(entry, file);
    } else if (name == "held") {
      plan.decisions.max_held = held_of(entry, file);
    } else if (name == "staging" && std::holds_alternative<std::int64_t>(entry.value.value)) {
      const std::int64_t staging = std::get<std::int64_t>(entry.value.value);
      if (staging < 1) refuse("{}:{}: decisions.staging must be bytes above zero, got {}", file, entry.line, staging);
      plan.decisions.staging = static_cast<std::size_t>(staging);
      staging_line = entry.line;
    } else if (!name.empty()) {
      const auto near = nearest(name, kDecisions);
      refuse("{}:{}: a plan decides nothing called '{}'{}", file, entry.line, name,
             near ? fmt::format("; did you mean decisions.{}?", *near) : "");
    } else {
      const auto key =
          std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == entry.key && is_plan_key(k); });
      if (const auto now = renamed(entry.key)) refuse("{}:{}: {} is now called {}", file, entry.line, entry.key, *now);
      if (key == keys.end()) refuse("{}:{}: {} is not part of a plan", file, entry.line, entry.key);
      try {
        assign(*key, current_value(entry.key, entry.value));
      } catch (Error& e) {
        throw e.within(fmt::format("{}:{}", file, entry.line));
      }
      named.insert(entry.key);
      if (entry.key == kShardingKey)
        for (const auto& [pattern, sharding] : any.parallel.sharding)
          plan.settings.push_back(fmt::format("{}.{}={}", kShardingKey, pattern, sharding));
      else
        plan.settings.push_back(fmt::format("{}={}", entry.key, to_text(*key)));
    }
  }
  check_staging(any.output.staging, plan.decisions.staging, staging_line, file);
  if (plan.decisions.model.empty()) refuse("{}: is not a plan: it does not name its model", file);
  Config defaults;
  for (const Key& key : keys_of(defaults))
    if (is_plan_key(key) && key.name != kShardingKey && !named.contains(key.name)) {
      if (whole == PlanKeys::all)
        refuse(
            "{}: {} is missing: a plan names every key that it fixes, so that nothing depends on who follows it; the "
            "default is {}",
            file, key.name, to_text(key));
      plan.missing.push_back(key.name);
    }
  if (!named.contains("decisions.device")) refuse("{}: decisions.device is missing: \"cpu\" or \"cuda\"", file);
  return plan;
}

}  // namespace trireme::train
