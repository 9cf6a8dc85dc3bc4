#include "trireme/train/same_run.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/program/check_together.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/plan_keys.h"

namespace trireme::train {
namespace {

// The first rank with something to say says it everywhere.
void refuse_together(const std::string& own, comm::Communicator& world) {
  auto first = static_cast<std::int32_t>(own.empty() ? world.size() : world.rank());
  world.all_reduce(std::span(&first, 1), comm::Reduce::min);
  if (first == world.size()) return;
  refuse("{}", broadcast_from(first, own, world));
}

// Two long lists from where they differ.
std::pair<std::string, std::string> shortened(const std::string& a, const std::string& b) {
  constexpr std::size_t kShown = 80;
  if (std::max(a.size(), b.size()) <= kShown) return {a, b};
  const auto same = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const std::size_t comma = a.rfind(',', same);
  const std::size_t from = comma == std::string::npos ? 0 : comma + 1;
  const auto shown = [&](const std::string& text) {
    std::string rest = text.substr(std::min(from, text.size()), kShown);
    if (from > 0) rest = "…" + rest;
    return from + kShown < text.size() ? rest + "…" : rest;
  };
  return {shown(a), shown(b)};
}

// One line for a name and one for its value.
void check_same(std::string_view what, std::vector<Fact> facts, comm::Communicator& world) {
  std::string text;
  for (Fact& fact : facts) fact.value = in_one_line(fact.value);
  for (const Fact& fact : facts) text += fmt::format("{}\n{}\n", fact.name, fact.value);
  const std::vector<std::string> theirs = split(broadcast_from(0, text, world), '\n');
  std::string different;
  for (std::size_t i = 0; i < facts.size() && different.empty(); ++i) {
    const std::string& other = 2 * i + 1 < theirs.size() ? theirs[2 * i + 1] : "";
    if (other == facts[i].value) continue;
    const auto [first, own] = shortened(other, facts[i].value);
    different = fmt::format("{}: {} is {} on rank 0 and {} on rank {}", what, facts[i].name, first, own, world.rank());
  }
  refuse_together(different, world);
}

// Of samples that are spread evenly: as many as are read in no time.
std::uint64_t digest_of(const data::Dataset& set) {
  constexpr std::int64_t kSamples = 256;
  const std::int64_t count = std::min(kSamples, set.samples());
  data::Batch batch;
  batch.rows = 1;
  set.resize(batch, 1);
  set.read_common(batch);
  std::string bytes;
  const auto add = [&](const auto& values, bool) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  std::uint64_t digest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    set.read(i * set.samples() / count, 0, batch);
    bytes = std::to_string(digest);
    data::each_values(batch, add);
    digest = site_of(bytes);
  }
  return digest;
}

bool about_this_machine(const std::string& key) {
  return key.starts_with("output.") || key == "runtime.threads" || key == "runtime.trace" ||
         key == "memory.offload_dir";
}

}  // namespace

std::string broadcast_from(int root, std::string text, comm::Communicator& world) {
  auto size = static_cast<std::int64_t>(text.size());
  world.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  text.resize(static_cast<std::size_t>(size));
  world.broadcast(std::as_writable_bytes(std::span(text)), root);
  return text;
}

std::string made_by_first(const std::function<std::string()>& make, comm::Communicator& world) {
  std::string text;
  std::int64_t ready = 0;
  const auto bytes = std::as_writable_bytes(std::span(&ready, 1));
  if (world.rank() == 0) {
    try {
      text = make();
    } catch (const std::exception& e) {
      world.abort(e.what());
      throw;
    }
    for (int other = 1; other < world.size(); ++other) world.send(bytes, other);
  } else {
    // Asking whether a message has come neither waits nor times out, and throws where the world has ended.
    constexpr auto kPause = std::chrono::milliseconds(2);
    comm::Request message = world.start_recv(bytes, 0);
    while (!message.test()) std::this_thread::sleep_for(kPause);
  }
  return broadcast_from(0, std::move(text), world);
}

Config changed_by_first(const Config& config, const std::function<Config(Config)>& change, comm::Communicator& world,
                        const models::Families& families) {
  // A setting to a line; annotations, of which one may be gone, as the whole table.
  const std::string text = made_by_first(
      [&] {
        const Config changed = change(config);
        std::string lines;
        for (const std::string& key : differing_keys(config, changed))
          if (key != kShardingKey) lines += fmt::format("{}={}\n", key, value_text(changed, key));
        for (const auto& [pattern, sharding] : changed.parallel.sharding)
          lines += fmt::format("{}.{}={}\n", kShardingKey, pattern, sharding);
        return lines;
      },
      world);
  Config changed = config;
  changed.parallel.sharding.clear();
  for (const std::string& line : split(text, '\n'))
    if (!line.empty()) apply_setting(changed, line, families);
  return changed;
}

void check_same_settings(const Config& config, const std::vector<Fact>& more, comm::Communicator& world) {
  Config copy = config;
  std::vector<Fact> facts = more;
  for (const Key& key : keys_of(copy))
    if (!about_this_machine(key.name)) facts.push_back({key.name, to_text(key)});
  check_same("the processes of this run were started with different settings", facts, world);
}

std::vector<Fact> facts_of(const std::optional<Decisions>& plan) {
  const auto list = [&](const std::vector<std::string>* names) {
    return names == nullptr ? std::string("not given") : fmt::format("[{}]", fmt::join(*names, ", "));
  };
  const bool given = plan.has_value() && plan->required;
  return {{"--plan", given ? "given" : "not given"},
          {"the plan's model", given ? plan->model : ""},
          {"the plan's decisions.device", given ? device::name_of(plan->device) : ""},
          {"the plan's decisions.transport", given && plan->transport ? comm::name_of(*plan->transport) : ""},
          {"the plan's decisions.stage_cuts", list(given && plan->stage_cuts ? &*plan->stage_cuts : nullptr)},
          {"the plan's decisions.schedule", list(given ? &plan->schedule : nullptr)},
          {"the plan's decisions.recompute", list(given && plan->recompute ? &*plan->recompute : nullptr)},
          {"the plan's decisions.offload_activations", list(given ? &plan->offload_activations : nullptr)},
          {"the plan's decisions.offload_states", list(given ? &plan->offload_states : nullptr)},
          {"the plan's decisions.offload_reloads",
           list(given && plan->offload_reloads ? &*plan->offload_reloads : nullptr)},
          {"the plan's decisions.held", given ? fmt::format("{}", fmt::join(plan->max_held, ", ")) : ""},
          {"the plan's decisions.staging", given ? std::to_string(plan->staging) : ""}};
}

std::string digest_of(const data::Data& data) {
  std::string text;
  for (const auto& set : {data.train, data.eval})
    text += set ? fmt::format("{} {:016x};", set->samples(), digest_of(*set)) : "none;";
  return fmt::format("{:016x}", site_of(text));
}

void check_same_data(const data::Data& data, comm::Communicator& world) {
  const auto samples = [](const auto& set) { return std::to_string(set ? set->samples() : 0); };
  const auto contents = [](const auto& set) { return set ? fmt::format("{:016x}", digest_of(*set)) : "none"; };
  check_same("the processes of this run read different data",
             {{"the number of samples", samples(data.train)},
              {"the number held out", samples(data.eval)},
              {"the digest of some samples", contents(data.train)},
              {"the digest of some held out", contents(data.eval)},
              {"the vocabulary", std::to_string(data.vocab)}},
             world);
}

void check_same_programs(const Compiled& compiled, comm::Communicator& world) {
  std::vector<std::uint64_t> digests;
  std::vector<std::string> names;
  for (const Role& role : compiled.roles)
    for (const program::Program& p : role.programs) {
      digests.push_back(program::communication_digest(p));
      names.push_back(fmt::format("'{}' of {}", p.name, role.name));
    }
  std::string groups;
  for (const program::Group& group : compiled.groups)
    groups += fmt::format("{} of {}; ", fmt::join(group.axes, ","), fmt::join(group.roles, ","));
  digests.push_back(site_of(groups));
  names.emplace_back("the table of groups");
  auto count = static_cast<std::int64_t>(digests.size());
  world.broadcast(std::as_writable_bytes(std::span(&count, 1)), 0);
  std::vector<std::uint64_t> theirs(digests);
  theirs.resize(static_cast<std::size_t>(count));
  world.broadcast(std::as_writable_bytes(std::span(theirs)), 0);
  std::string different;
  if (theirs != digests) {
    const auto at = static_cast<std::size_t>(
        std::mismatch(digests.begin(), digests.end(), theirs.begin(), theirs.end()).first - digests.begin());
    different = fmt::format(
        "the processes of this run compiled different programs: rank 0 and rank {} differ in what {} exchanges; are "
        "they of one build?",
        world.rank(), at < names.size() ? names[at] : "a role");
  }
  refuse_together(different, world);
}

}  // namespace trireme::train
