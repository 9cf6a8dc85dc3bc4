// The part of Trainer that plans and compiles: declared in trainer.h.
#include <algorithm>
#include <limits>

#include "trireme/compiler/dumps.h"
#include "trireme/compiler/staging.h"
#include "trireme/io/shard_writer.h"
#include "trireme/planner/machine.h"
#include "trireme/train/settle_plan.h"
#include "trireme/train/trainer.h"

namespace trireme::train {

// What is only looked at is shown as it was planned, or as it was asked for.
comm::TransportKind Trainer::planned_transport() const {
  if (options_.world != nullptr) return options_.world->transport();
  if (options_.dry_run) return transport_of(config_, options_.plan);
  return config_.runtime.link.empty() ? comm::TransportKind::threads : comm::TransportKind::emulated;
}

void Trainer::compile_plan() {
  const bool whole = config_.output.staging.automatic();
  CompileOptions options{.threads = threads_,
                         .staging = std::numeric_limits<std::size_t>::max(),
                         .staging_gives_way = whole,
                         .transport = planned_transport(),
                         .local_ranks = options_.world == nullptr ? 0 : options_.local_ranks,
                         .decided = options_.plan,
                         .dump_passes = leads() ? options_.dump_passes : "",
                         .disabled_passes = options_.disabled_passes};
  const auto rounded = [](std::size_t bytes) {
    constexpr std::size_t kUnit = io::kStagingAlignment;
    return std::max(kUnit, bytes / kUnit * kUnit);
  };
  if (!whole) options.staging = rounded(config_.output.staging.size->count);
  // State that leaves memory to save it is not staged in memory as a whole.
  constexpr std::size_t kStaging = std::size_t{16} << 20;
  if (whole && offloads_state(config_)) options.staging = kStaging;
  if (!options.dump_passes.empty()) compiler::remove_dumps(options.dump_passes);
  planned_ = settle_plan(config_, registry_, options, options_.world);
  if (!planned_.device_note.empty() && leads()) note(LogLevel::info, planned_.device_note);
  if (planned_.stale && leads())
    note(LogLevel::info,
         fmt::format("the plan is made anew: {} is for another model, or of an earlier version", options_.plan->file));
  const bool follows = options_.plan && !planned_.stale;
  if (follows && options_.plan->transport.value_or(options.transport) != options.transport && leads())
    note(LogLevel::info,
         fmt::format("{} was made for ranks over {}, and these are over {}: its decisions stand, and collectives have "
                     "the scratch that {} needs",
                     options_.plan->file, comm::name_of(*options_.plan->transport), comm::name_of(options.transport),
                     comm::name_of(options.transport)));
  compiled_ = compile(planned_, config_, options);
  // Where memory is short, checkpoints give way: they are staged in what is left, and may then wait for the disk.
  const bool on_host = compiled_.device() != device::Kind::cpu;  // staged in the host's memory, and not the device's
  std::size_t limit = on_host ? 0 : config_.memory.limit.count;
  if (limit == 0 && options_.write) limit = planner::total_memory();
  // One size for all roles, for which the fullest of them has room.
  std::size_t room = std::numeric_limits<std::size_t>::max();
  bool gives_way = false;
  for (const Role& role : compiled_.roles) {
    const std::size_t staging = on_host ? role.host_staging : role.layout.staging_bytes;
    const std::size_t rest = on_host ? role.tier_bytes[program::kHostTier] : role.arena_bytes - staging;
    if (staging == 0 || rest + staging <= limit) continue;
    gives_way = true;
    room = std::min(room, limit > rest ? limit - rest : 0);
  }
  if (whole && limit > 0 && gives_way) {
    compiled_ = compiler::with_staging(std::move(compiled_), rounded(room));
  }
  if (!whole) return;
  // The plan states what "auto" has come to: whole blocks with room for the largest role.
  std::size_t largest = 1;
  for (const Role& each : compiled_.roles)
    largest = std::max(largest, on_host ? each.host_staging : each.layout.staging_bytes);
  planned_.plan.staging = rounded(largest + io::kStagingAlignment - 1);
}

}  // namespace trireme::train
