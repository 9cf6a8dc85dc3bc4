#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "trireme/device/arena.h"
#include "trireme/device/host_block.h"
#include "trireme/device/kernel.h"
#include "trireme/device/tier_file.h"
#include "trireme/program/program.h"
#include "trireme/runtime/process_groups.h"

namespace trireme::runtime {

// Memory in other tiers than the device's own; null: nothing is kept there.
struct Tiers {
  device::HostBlock* host = nullptr;
  device::TierFile* disk = nullptr;
};

// Two launches of a program with the same signature share a prepared kernel.
std::string kernel_signature(const program::Instruction& instruction);

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
  std::size_t launches = 1;  // done at once from here on; 0: with one before
};

// A program as one rank does it: every kernel prepared once, every operand at its place in the rank's memory.
class PreparedProgram {
 public:
  // Where it runs, as Executor's constructor describes it. All of it must outlive this.
  struct Site {
    device::Arena& arena;
    ThreadPool& pool;
    Tiers tiers;
    ProcessGroups* ranks;
    device::Algorithms* algorithms;
  };
  // Fails where the site is not one that the program was planned for, or where a kernel cannot be prepared.
  PreparedProgram(const program::Program& program, const Site& site);

  std::size_t size() const { return instructions_.size(); }
  const Prepared& operator[](std::size_t i) const { return instructions_[i]; }

 private:
  struct Kernels;  // while preparing: those that there are, by signature
  void prepare(const program::Program& program, std::size_t i, const Site& site, Kernels& kernels);
  void group_launches(const program::Program& program);

  ThreadPool own_thread_{1};  // of streams other than the first: kernels run on the stream's thread alone
  std::vector<std::shared_ptr<device::Kernel>> kernels_;
  std::vector<Prepared> instructions_;
};

}  // namespace trireme::runtime
