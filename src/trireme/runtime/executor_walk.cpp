#include <algorithm>
#include <chrono>

#include "trireme/core/error.h"
#include "trireme/device/group_kernel.h"
#include "trireme/program/capture_regions.h"
#include "trireme/runtime/executor.h"

// A run: every instruction issued on its stream, or replayed with its capture region.
namespace trireme::runtime {

using program::CaptureRegion;
using program::Instruction;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::size_t stream_of(const Instruction& instruction) { return static_cast<std::size_t>(instruction.stream); }

constexpr device::Streams::Set kBetweenRanks = [] {
  device::Streams::Set streams = 0;
  for (std::int32_t s = 0; s <= program::kReduceStream; ++s)
    if (program::is_between_ranks(s)) streams |= 1U << s;
  return streams;
}();

}  // namespace

void Executor::run() {
  staging_.check_bound();
  ++runs_;
  failure_.clear();
  collectives_.forget();
  timeline_.start();
  host_seconds_ = 0;
  staging_.stage(*streams_, pool_);
  // In the first run libraries load what they need, which cannot be captured.
  const bool one_by_one = first_bad_ != nullptr && streams_->asynchronous();
  const bool captures = runs_ > 1 && !one_by_one && !timeline_.traces() && !program_.capture_regions.empty();
  // Whatever goes wrong, no stream has work when this returns: what was issued uses this executor.
  std::exception_ptr error;
  const auto note = [&](auto&& work) {
    try {
      work();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  note([&] { one_by_one ? run_one_by_one() : captures ? run_captured() : run_issued(); });
  if (ranks_ != nullptr && (error || failure_.happened())) ranks_->abandon();
  note([&] { synchronize(device::Streams::kAll); });
  staging_.settle(error != nullptr || failure_.happened());
  failure_.rethrow();  // an instruction's error is the cause
  try {
    if (error) std::rethrow_exception(error);
  } catch (Error& e) {
    throw e.within(fmt::format("program '{}'", program_.name));
  }
  timeline_.read(*streams_);
}

void Executor::synchronize(device::Streams::Set of) {
  ranks_ == nullptr ? comm::synchronize(*streams_, {}, of) : ranks_->synchronize(*streams_, of);
}

void Executor::run_issued() {
  streams_->fork();
  issue(0, prepared_.size());
  finish_streams();
}

void Executor::issue(std::size_t first, std::size_t last) {
  streams_->issue(std::span(work_).subspan(first, last - first));
}

void Executor::run_from(std::size_t i) {
  if (prepared_[i].launches == 0) return;
  prepared_[i].launches == 1 ? run_one(i) : run_group(i);
}

// After a failure the rest of the program is skipped, but events are still recorded so that no stream waits for ever.
void Executor::run_one(std::size_t i) {
  const bool to_disk = disk_ && is_disk_copy(program_, program_.instructions[i]);
  bool done = true;
  failure_.guard(i, [&] {
    timeline_.come_to(i, *streams_);
    if (disk_) disk_->before_waiting(i, *streams_);
    wait_for_events(i);
    if (failure_.happened()) return;
    note_use(i);
    wait_until_released(i);
    timeline_.begin(i, *streams_);
    if (to_disk)
      done = disk_->start(i, *streams_);
    else
      execute(i);
    if (!done) return;
    timeline_.end(i, *streams_);
    if (first_bad_ != nullptr && !streams_->asynchronous()) look_at(i);
  });
  if (done) record_event(i);
  if (to_disk) disk_->after(i, *streams_);
}

void Executor::execute(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  const Prepared& p = prepared_[i];
  const std::size_t stream = stream_of(instruction);
  switch (instruction.kind) {
    case Instruction::Kind::input:
      if (capturing_ != nullptr && staging_.is_ahead(i)) break;
      streams_->copy(p.outputs.front(), staging_.source(i, *streams_), instruction.outputs.front().type.bytes(),
                     stream);
      break;
    case Instruction::Kind::copy:
    case Instruction::Kind::store:
    case Instruction::Kind::load:
      streams_->copy(p.outputs.front(), p.inputs.front(), instruction.outputs.front().type.bytes(), stream);
      break;
    case Instruction::Kind::collective:
    case Instruction::Kind::push:
    case Instruction::Kind::pull:
    case Instruction::Kind::send:
    case Instruction::Kind::receive: {
      const auto begin = Clock::now();
      collectives_.run(i, *streams_);
      if (stream == 0 && !streams_->asynchronous()) timeline_.communicated(i, seconds_since(begin));
      break;
    }
    case Instruction::Kind::launch:
      if (instruction.on_host) {
        const auto call = [](void* context) {
          const auto& work = *static_cast<const device::Streams::Work*>(context);
          static_cast<Executor*>(work.context)->launch_on_host(work.argument);
        };
        streams_->call(call, &work_[i], stream);
        break;
      }
      p.kernel->launch({p.inputs, p.outputs, p.workspace, p.pool, streams_->native(stream)});
      break;
  }
}

void Executor::run_group(std::size_t first) {
  const std::size_t last = first + prepared_[first].launches;
  const std::size_t stream = stream_of(program_.instructions[first]);
  failure_.guard(first, [&] {
    for (std::size_t i = first; i < last; ++i) timeline_.come_to(i, *streams_);
    wait_for_events(first);
    if (failure_.happened()) return;
    std::vector<device::GroupKernel*> members;
    std::vector<device::Launch> launches;
    std::vector<device::Streams::Copy> copies;
    timeline_.begin(first, *streams_);
    for (std::size_t i = first; i < last; ++i) {
      const Prepared& p = prepared_[i];
      note_use(i);
      wait_until_released(i);
      if (program_.instructions[i].kind == Instruction::Kind::copy) {
        copies.push_back({p.outputs.front(), p.inputs.front(), program_.instructions[i].outputs.front().type.bytes()});
        continue;
      }
      members.push_back(static_cast<device::GroupKernel*>(p.kernel));
      launches.push_back({p.inputs, p.outputs, p.workspace, p.pool, streams_->native(stream)});
    }
    if (copies.empty())
      members.front()->launch_group(members, launches);
    else
      streams_->copy_all(copies, stream);
    timeline_.end(first, *streams_);
    for (std::size_t i = first + 1; i < last; ++i) {
      timeline_.begin(i, *streams_);
      timeline_.end(i, *streams_);
    }
  });
  for (std::size_t i = first; i < last; ++i) record_event(i);
}

// What comes from before a captured region is waited for before it is replayed.
void Executor::wait_for_events(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  for (const std::int32_t event : instruction.waits) {
    if (!is_ordered_here(event)) continue;
    if (!failure_.happened()) collectives_.settle(event, *streams_);
    const double waited = streams_->wait(static_cast<std::size_t>(event), stream_of(instruction));
    if (instruction.stream == 0) timeline_.waited(i, event, waited);
  }
}

void Executor::record_event(std::size_t i) {
  const Instruction& instruction = program_.instructions[i];
  if (instruction.records == program::kNone || collectives_.is_on_its_way(i)) return;
  failure_.guard(i, [&] { streams_->record(static_cast<std::size_t>(instruction.records), stream_of(instruction)); });
}

void Executor::note_use(std::size_t i) {
  for (std::size_t tier = 0; tier < highest_offset_.size(); ++tier) {
    std::atomic<std::size_t>& peak = highest_offset_[tier];
    const std::size_t end = prepared_[i].end_offset[tier];
    std::size_t seen = peak.load(std::memory_order_relaxed);
    while (seen < end && !peak.compare_exchange_weak(seen, end, std::memory_order_relaxed)) {
    }
  }
}

void Executor::wait_until_released(std::size_t i) const {
  if (held_ == nullptr) return;
  for (const ir::StateId state : prepared_[i].overwrites) held_->wait(state);
}

// One at a time: launches on the host have one stream.
void Executor::launch_on_host(std::size_t i) {
  if (failure_.happened()) return;
  const auto begin = Clock::now();
  failure_.guard(i, [&] {
    const Prepared& p = prepared_[i];
    p.kernel->launch({p.inputs, p.outputs, p.workspace, p.pool, nullptr});
  });
  host_seconds_ += seconds_since(begin);
}

void Executor::join(device::Streams::Set except) {
  for (std::size_t s = 1; s < static_cast<std::size_t>(program_.streams()); ++s)
    if ((except >> s & 1U) == 0) timeline_.waited_for(s, streams_->join(s));
}

void Executor::finish_streams() {
  if (!failure_.happened()) collectives_.settle_all(*streams_);
  join();
  staging_.fetch_outputs(*streams_);
  timeline_.finish(*streams_);
}

bool Executor::is_ordered_here(std::int32_t event) const {
  return capturing_ == nullptr || std::any_of(program_.instructions.begin() + capturing_->first,
                                              program_.instructions.begin() + capturing_->last,
                                              [&](const Instruction& i) { return i.records == event; });
}

bool Executor::captures_all() const {
  const CaptureRegion& first = program_.capture_regions.front();
  return first.first == 0 && static_cast<std::size_t>(first.last) == prepared_.size();
}

device::Streams::Set Executor::not_captured() const { return kBetweenRanks | staging_.own_streams(); }

std::size_t Executor::capture(const CaptureRegion& region) {
  streams_->begin_capture();
  capturing_ = &region;
  try {
    streams_->fork(not_captured());
    issue(static_cast<std::size_t>(region.first), static_cast<std::size_t>(region.last));
    failure_.rethrow();
    join(kBetweenRanks);
    if (captures_all()) {
      staging_.fetch_outputs(*streams_);
      timeline_.finish(*streams_);
    }
  } catch (...) {
    capturing_ = nullptr;
    streams_->drop_capture();
    throw;
  }
  capturing_ = nullptr;
  return streams_->end_capture();
}

// All streams of a captured region are in the first one; so around it that follows the others, and they follow it.
void Executor::replay(std::size_t r) {
  const CaptureRegion& region = program_.capture_regions[r];
  for (auto i = static_cast<std::size_t>(region.first); i < static_cast<std::size_t>(region.last); ++i)
    wait_until_released(i);
  if (captures_all()) return streams_->replay(captured_[r]);
  join(kBetweenRanks);
  for (const std::int32_t event : region.waits) {
    if (!failure_.happened()) collectives_.settle(event, *streams_);
    streams_->wait(static_cast<std::size_t>(event), 0);
  }
  streams_->replay(captured_[r]);
  streams_->fork(not_captured());
  for (const std::int32_t event : region.records) streams_->record(static_cast<std::size_t>(event), 0);
}

void Executor::run_captured() {
  if (captured_.empty()) {
    std::vector<std::size_t> captured;
    for (const CaptureRegion& region : program_.capture_regions) captured.push_back(capture(region));
    captured_ = std::move(captured);
  }
  staging_.copy_ahead(*streams_);
  staging_.copy_expected(*streams_);
  std::size_t next = 0;
  for (std::size_t r = 0; r < captured_.size(); ++r) {
    issue(next, static_cast<std::size_t>(program_.capture_regions[r].first));
    replay(r);
    next = static_cast<std::size_t>(program_.capture_regions[r].last);
  }
  if (captures_all()) return;
  issue(next, prepared_.size());
  finish_streams();
}

}  // namespace trireme::runtime
