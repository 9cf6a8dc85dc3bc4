#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/runtime/executor.h"

// What a device beside the CPU is given once and then does again and again: the program's capture regions.
namespace trireme::runtime {

using program::CaptureRegion;
using program::Instruction;

bool Executor::recorded_here(std::int32_t event) const {
  return capturing_ == nullptr || std::any_of(program_.instructions.begin() + capturing_->first,
                                              program_.instructions.begin() + capturing_->last,
                                              [&](const Instruction& i) { return i.records == event; });
}

bool Executor::captures_all() const {
  return program_.capture_regions.size() == 1 && program_.capture_regions.front().first == 0 &&
         static_cast<std::size_t>(program_.capture_regions.front().last) == prepared_.size();
}

std::size_t Executor::capture(const CaptureRegion& region) {
  queue_->begin_recording();
  capturing_ = &region;
  try {
    queue_->spread(program::kCommStream);
    issue(static_cast<std::size_t>(region.first), static_cast<std::size_t>(region.last));
    queue_->gather(program::kCommStream);
    if (captures_all()) issue_outputs();
  } catch (...) {
    capturing_ = nullptr;
    queue_->drop_recording();
    throw;
  }
  capturing_ = nullptr;
  return queue_->end_recording();
}

// The lanes of a captured region are all in the first one; so around it that follows the others, and they follow it.
void Executor::replay(std::size_t region) {
  queue_->gather(program::kCommStream);
  for (const std::int32_t event : program_.capture_regions[region].waits)
    queue_->wait(static_cast<std::size_t>(event), 0);
  queue_->replay(captured_[region]);
  queue_->spread(program::kCommStream);
  for (const std::int32_t event : program_.capture_regions[region].records)
    queue_->record(static_cast<std::size_t>(event), 0);
}

void Executor::run_on_device() {
  failed_ = false;
  failure_ = nullptr;
  host_seconds_ = 0;
  make_ready();
  if (trace_ != nullptr || runs_ == 1) {
    // In the first run libraries load what they need, which cannot be captured.
    queue_->spread();
    issue(0, prepared_.size());
    queue_->gather();
    issue_outputs();
  } else {
    if (captured_.empty()) {
      std::vector<std::size_t> captured;
      for (const CaptureRegion& region : program_.capture_regions) captured.push_back(capture(region));
      captured_ = std::move(captured);
    }
    copy_ahead();
    if (captures_all()) {
      queue_->replay(captured_.front());
    } else {
      std::size_t next = 0;
      for (std::size_t r = 0; r < captured_.size(); ++r) {
        issue(next, static_cast<std::size_t>(program_.capture_regions[r].first));
        replay(r);
        next = static_cast<std::size_t>(program_.capture_regions[r].last);
      }
      issue(next, prepared_.size());
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
