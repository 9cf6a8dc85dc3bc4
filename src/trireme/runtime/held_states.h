#pragma once
#include <atomic>
#include <cstddef>
#include <memory>

#include "trireme/ir/graph.h"

namespace trireme::runtime {

// State that another thread is still reading, such as a checkpoint that copies it. An executor waits before
// the first instruction that would overwrite a held state; reading it is free. Any thread may release.
class HeldStates {
 public:
  explicit HeldStates(std::size_t states) : held_(std::make_unique<std::atomic<bool>[]>(states)) {}

  void hold(ir::StateId state) { at(state).store(true, std::memory_order_relaxed); }
  void release(ir::StateId state) {
    at(state).store(false, std::memory_order_release);
    at(state).notify_all();
  }
  void wait(ir::StateId state) const { at(state).wait(true, std::memory_order_acquire); }

 private:
  std::atomic<bool>& at(ir::StateId state) const { return held_[static_cast<std::size_t>(state)]; }

  std::unique_ptr<std::atomic<bool>[]> held_;
};

}  // namespace trireme::runtime
