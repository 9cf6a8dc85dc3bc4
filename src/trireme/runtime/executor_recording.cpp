#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/runtime/executor.h"

// What a device beside the CPU is given once and then does again and again: every run of instructions between two that
// need the host.
namespace trireme::runtime {

using program::Instruction;

namespace {

constexpr std::size_t kWorthRecording = 8;  // instructions

// Collectives meet the other ranks on the host; what stands between them in their lane stays there with them.
bool needs_host(const Instruction& instruction) {
  return instruction.communicates() || instruction.stream == program::kCommStream;
}

}  // namespace

// A run ends before an instruction that waits for a collective, so that what comes before it does not.
void Executor::find_runs() {
  const std::vector<Instruction>& instructions = program_.instructions;
  const auto events = static_cast<std::size_t>(program_.events());
  std::vector<std::size_t> run_of(instructions.size());
  std::vector<std::size_t> recorder(events, 0);
  for (std::size_t i = 0; i < instructions.size(); ++i)
    if (instructions[i].records != program::kNone) recorder[static_cast<std::size_t>(instructions[i].records)] = i;
  runs_of_device_.clear();
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const bool host = needs_host(instructions[i]);
    std::vector<std::int32_t> from_host;
    for (const std::int32_t event : instructions[i].waits)
      if (!host && needs_host(instructions[recorder[static_cast<std::size_t>(event)]])) from_host.push_back(event);
    if (runs_of_device_.empty() || host || !from_host.empty() || needs_host(instructions[i - 1]))
      runs_of_device_.push_back({.first = i, .last = i, .waits = from_host});
    runs_of_device_.back().last = i + 1;
    run_of[i] = runs_of_device_.size() - 1;
  }
  for (DeviceRun& run : runs_of_device_)
    run.records = !needs_host(instructions[run.first]) && run.last - run.first >= kWorthRecording;
  std::vector<bool> waited_elsewhere(events, false);
  for (std::size_t i = 0; i < instructions.size(); ++i)
    for (const std::int32_t event : instructions[i].waits)
      if (run_of[recorder[static_cast<std::size_t>(event)]] != run_of[i])
        waited_elsewhere[static_cast<std::size_t>(event)] = true;
  for (std::size_t e = 0; e < events; ++e)
    if (DeviceRun& run = runs_of_device_[run_of[recorder[e]]]; waited_elsewhere[e] && run.records)
      run.announces.push_back(static_cast<std::int32_t>(e));
}

bool Executor::recorded_here(std::int32_t event) const {
  return recording_ == nullptr ||
         std::any_of(program_.instructions.begin() + static_cast<std::ptrdiff_t>(recording_->first),
                     program_.instructions.begin() + static_cast<std::ptrdiff_t>(recording_->last),
                     [&](const Instruction& i) { return i.records == event; });
}

void Executor::record(DeviceRun& run) {
  const bool all = runs_of_device_.size() == 1;
  queue_->begin_recording();
  recording_ = &run;
  try {
    queue_->spread(program::kCommStream);
    issue(run.first, run.last);
    queue_->gather(program::kCommStream);
    if (all) issue_outputs();
  } catch (...) {
    recording_ = nullptr;
    queue_->drop_recording();
    throw;
  }
  recording_ = nullptr;
  run.recording = queue_->end_recording();
}

// The lanes of a recording are all in the first one; so around it that follows the others, and they follow it.
void Executor::replay(const DeviceRun& run) {
  queue_->gather(program::kCommStream);
  for (const std::int32_t event : run.waits) queue_->wait(static_cast<std::size_t>(event), 0);
  queue_->replay(run.recording);
  queue_->spread(program::kCommStream);
  for (const std::int32_t event : run.announces) queue_->record(static_cast<std::size_t>(event), 0);
}

void Executor::run_on_device() {
  failed_ = false;
  failure_ = nullptr;
  host_seconds_ = 0;
  make_ready();
  if (trace_ != nullptr || runs_ == 1) {
    // In the first run libraries load what they need, which cannot be recorded.
    queue_->spread();
    issue(0, prepared_.size());
    queue_->gather();
    issue_outputs();
  } else {
    if (!recorded_)
      for (DeviceRun& run : runs_of_device_)
        if (run.records) record(run);
    recorded_ = true;
    copy_ahead();
    if (runs_of_device_.size() == 1 && runs_of_device_.front().records) {
      queue_->replay(runs_of_device_.front().recording);
    } else {
      for (const DeviceRun& run : runs_of_device_)
        if (run.records)
          replay(run);
        else
          issue(run.first, run.last);
      queue_->gather();
      issue_outputs();
    }
  }
  try {
    queue_->synchronize();
  } catch (Error& e) {
    throw e.within(fmt::format("program '{}'", program_.name));
  }
  if (failure_) std::rethrow_exception(failure_);
  read_times();
}

}  // namespace trireme::runtime
