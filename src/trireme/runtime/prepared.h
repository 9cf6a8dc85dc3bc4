#pragma once
#include <array>
#include <vector>

#include "trireme/device/kernel.h"
#include "trireme/program/program.h"

namespace trireme::runtime {

// An instruction as this rank does it: its kernel, and where its operands are.
struct Prepared {
  device::Kernel* kernel = nullptr;
  ThreadPool* pool = nullptr;  // of a launch by the host's cores
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;
  std::array<std::size_t, program::kTiers> end_offset{};
  std::size_t tier_offset = 0;  // of a store or load, in the file
  std::vector<ir::StateId> overwrites;
};

}  // namespace trireme::runtime
