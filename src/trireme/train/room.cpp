#include "trireme/train/room.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "trireme/core/process_limits.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/outside.h"
#include "trireme/train/what_if.h"

namespace trireme::train {
namespace {

constexpr const char* kLimitKey = "memory.limit";

// The keys that the savings set which were tried and keep the numbers.
std::string keys_of(const std::vector<WhatIf>& savings) {
  std::set<std::string> keys;
  for (const WhatIf& s : savings)
    if (s.tried && !s.changes_numbers)
      for (const std::string& setting : s.settings) keys.insert(setting.substr(0, setting.find('=')));
  return fmt::format("{}", fmt::join(keys, ", "));
}

std::string with_settings(const WhatIf& saving) {
  return fmt::format("{} ({} B) with --{}", format_bytes(saving.peak), format_count(saving.peak),
                     fmt::join(saving.settings, " --"));
}

// Says what the plan needs and what would fit.
std::string over_limit(const Config& config, const Registry& registry, const Compiled& compiled, const Role& role,
                       const Site& site) {
  const std::uint64_t limit = config.memory.limit.count;
  const WhatIf* fits = nullptr;
  const WhatIf* smallest = nullptr;
  // Without a limit "optimal" would look for least time; what is looked for is least memory.
  Config base = config;
  const bool searched = base.memory.remat == Remat::optimal;
  if (searched) base.memory.remat = "full";
  // A refusal should not be waited for: of a large model some are left out.
  constexpr double kInstructions = 200'000;
  const CompileOptions options{
      .threads = site.threads, .staging = role.layout.staging_bytes, .transport = compiled.plan.transport};
  std::vector<WhatIf> savings = what_if(base, registry, options, compiled, {}, kInstructions);
  const auto listed = std::ssize(savings) - 1;  // the first is as configured
  const auto untried = std::count_if(savings.begin(), savings.end(), [](const WhatIf& s) { return !s.tried; });
  MicroBatchesThatFit more = largest_micro_batches(base, registry, options, compiled, limit, savings, kInstructions);
  const std::vector<WhatIf> alone = savings;
  std::move(more.found.begin(), more.found.end(), std::back_inserter(savings));
  CombinedSavings combined;
  if (std::none_of(savings.begin(), savings.end(), [&](const WhatIf& s) {
        return s.tried && s.refused.empty() && !s.changes_numbers && s.peak <= limit;
      }))
    combined = combine_savings(base, registry, options, compiled, limit, alone, kInstructions);
  std::move(combined.found.begin(), combined.found.end(), std::back_inserter(savings));
  const auto sets_remat = [](const std::string& setting) { return setting.starts_with("memory.remat="); };
  for (WhatIf& s : savings)
    if (searched && std::none_of(s.settings.begin(), s.settings.end(), sets_remat))
      s.settings.emplace_back("memory.remat=full");
  for (const WhatIf& s : savings) {
    if (!s.refused.empty() || s.changes_numbers || s.peak >= role.arena_bytes) continue;
    if (smallest == nullptr || s.peak < smallest->peak) smallest = &s;
    if (s.peak <= limit && (fits == nullptr || s.time < fits->time)) fits = &s;
  }
  std::string way = fmt::format("no smaller peak was found with other settings of {}", keys_of(savings));
  if (fits != nullptr)
    way = fmt::format("it fits in {}", with_settings(*fits));
  else if (smallest != nullptr)
    way = fmt::format("the smallest peak found is {}; settings of {} were tried", with_settings(*smallest),
                      keys_of(savings));
  if (untried > 0)
    way += fmt::format(" ({} of {} savings were tried; `trireme memory` tries all)", listed - untried, listed);
  if (const std::int64_t rows = smallest_micro_batch(base, compiled, kInstructions); fits == nullptr && rows > 1)
    way += fmt::format(" (train.micro_batch below {} was not tried: `trireme memory` does, for longer)", rows);
  else if (fits == nullptr && !combined.all_tried)
    way += " (not all combinations of them were tried)";
  else if (!more.all_tried)
    way += " (not all sizes of train.micro_batch were tried: a larger one may fit as well)";
  // Of a plan that is followed, no key can be given otherwise.
  if (!site.plan.empty() && (fits != nullptr || smallest != nullptr))
    way += fmt::format(
        "; {} fixes these keys: make it anew with them (`trireme memory CONFIG … --plan-out {}`), or raise limit in "
        "its "
        "[memory]",
        site.plan, site.plan);
  return fmt::format("memory.limit = {} is too small: the plan needs {} ({} B); {}", value_text(config, kLimitKey),
                     format_bytes(role.arena_bytes), format_count(role.arena_bytes), way);
}

void check_limit(const Config& config, const Registry& registry, const Compiled& compiled, const Site& site,
                 std::vector<std::string>& found) {
  const std::uint64_t limit = config.memory.limit.count;
  if (limit == 0) return;
  const auto times = [&](const Role& role) {
    return static_cast<double>(role.arena_bytes) / static_cast<double>(limit);
  };
  // No way to save memory makes ranks smaller that take no rows: what is found first says that of them too.
  std::string extra;
  for (const Role& role : compiled.roles)
    if (!role.takes_rows() && role.arena_bytes > limit && extra.empty())
      extra = fmt::format(". And {} needs {}{}", role.name, format_bytes(role.arena_bytes),
                          smaller_share(config, times(role)));
  bool said = false;  // what would fit: once, for the first role of those that take rows
  for (const Role& role : compiled.roles) {
    if (role.arena_bytes <= limit) continue;
    if (role.takes_rows() && !std::exchange(said, true))
      found.push_back(over_limit(config, registry, compiled, role, site) + extra);
    else
      found.push_back(fmt::format("memory.limit = {} is too small for {}, which needs {}{}",
                                  value_text(config, kLimitKey), role.name, format_bytes(role.arena_bytes),
                                  role.takes_rows() ? "" : smaller_share(config, times(role))));
  }
}

void check_machine(const Compiled& compiled, const Site& site, std::string_view what_needs, const char* way,
                   std::vector<std::string>& found) {
  const auto check = [&](std::size_t needed, std::size_t there, std::string_view what) {
    if (there > 0 && needed > there)
      found.push_back(fmt::format("{} needs {}, and this machine has {} of {}; {}", what_needs, format_bytes(needed),
                                  format_bytes(there), what, way));
  };
  const bool accelerated = compiled.device() != device::Kind::cpu;
  const int ranks = site.alone || site.local_ranks == 0 ? compiled.ranks() : site.local_ranks;
  const int first = site.rank / ranks * ranks;
  // What the ranks of this machine take of the host's memory.
  std::size_t sum = 0;
  for (int rank = first; rank < std::min(first + ranks, compiled.ranks()); ++rank) {
    const Role& role = compiled.role_of(rank);
    sum += accelerated ? role.tier_bytes[program::kHostTier] + role.host_staging : role.arena_bytes;
  }
  // Ranks that share a GPU share its memory.
  if (const std::size_t gpus = device::cuda::gpus().size(); accelerated && gpus > 0)
    check((static_cast<std::size_t>(ranks) + gpus - 1) / gpus * compiled.arena_bytes(),
          planner::memory_of(compiled.device()), "free GPU memory");
  const std::size_t processes = site.alone ? 1 : static_cast<std::size_t>(ranks);
  sum += site.outside * processes;
  check(sum, site.memory > 0 ? site.memory : planner::total_memory(), "memory");
  if (site.memory > 0) return;
  // Each process has the limit to itself.
  constexpr int kOtherThreads = 4;  // a rank's streams, the loader's and the checkpoint's
  const ProcessLimit limit = process_limit((site.alone ? ranks : 1) * (site.threads + kOtherThreads));
  if (const std::size_t own = (sum + processes - 1) / processes; own > limit.bytes)
    found.push_back(fmt::format("{} needs {}, and {} leaves {}; {}", what_needs, format_bytes(own), limit.name,
                                format_bytes(limit.bytes), way));
}

std::uint64_t bytes_of(const std::vector<program::Operand>& operands) {
  std::uint64_t bytes = 0;
  for (const program::Operand& o : operands) bytes += o.type.bytes();
  return bytes;
}

// What would fail in the middle of a step, by MPI. A gather moves what it makes, a scatter what it takes.
void check_messages(const Compiled& compiled, const Site& site, std::vector<std::string>& found) {
  if (site.alone) return;
  for (const Role& role : compiled.roles)
    for (const program::Program& p : role.programs)
      for (const program::Instruction& i : p.instructions) {
        if (!i.communicates()) continue;
        const std::uint64_t bytes = std::max(bytes_of(i.inputs), bytes_of(i.outputs));
        if (bytes <= site.largest_message) continue;
        found.push_back(
            fmt::format("'{}' of program '{}' exchanges {} at once, and a message over MPI has at most {}; shard the "
                        "tensor further "
                        "(parallel.zero, or tp in parallel.mesh), or train with ranks that are threads",
                        i.name, p.name, format_bytes(bytes), format_bytes(site.largest_message)));
        return;
      }
}

}  // namespace

bool exceeds_limit(const Config& config, const Compiled& compiled) {
  const std::uint64_t limit = config.memory.limit.count;
  return limit > 0 && std::any_of(compiled.roles.begin(), compiled.roles.end(),
                                  [&](const Role& role) { return role.arena_bytes > limit; });
}

std::vector<std::string> shortfalls(const Config& config, const Registry& registry, const Compiled& compiled,
                                    const Site& site) {
  std::vector<std::string> found;
  check_limit(config, registry, compiled, site, found);
  check_machine(compiled, site, "the run", "`trireme memory` shows what takes it", found);
  if (config.runtime.transport != Transport::nccl) check_messages(compiled, site, found);
  const std::string others = compiled.other_ranks();
  if (site.alone && compiled.ranks() > kMaxThreadRanks)
    found.push_back(fmt::format(
        "parallel.mesh = \"{}\"{} has {} ranks; threads of one process are at most {}; `mpirun -n {}` starts a process "
        "for each",
        config.parallel.mesh, others.empty() ? "" : " with " + others, compiled.ranks(), kMaxThreadRanks,
        compiled.ranks()));
  return found;
}

std::vector<std::string> shortfalls_of_use(const Compiled& compiled, const Site& site) {
  std::vector<std::string> found;
  check_machine(compiled, site, "the model", "ranks of several machines can share it (parallel.mesh)", found);
  check_messages(compiled, site, found);
  return found;
}

}  // namespace trireme::train
