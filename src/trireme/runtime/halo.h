#pragma once
#include <vector>

#include "trireme/comm/device/group.h"
#include "trireme/program/program.h"
#include "trireme/runtime/prepared.h"

namespace trireme::runtime {

// What a halo exchange or a halo reduction (ops/collective/halo.h) does on one rank: it packs what others need, swaps
// messages with all of them at once, and copies or adds what came.
class HaloMoves {
 public:
  // `p` says where the instruction's operands and scratch are.
  HaloMoves(const program::Instruction& instruction, const Prepared& p, device::Kind device);

  void run(comm::DeviceGroup& group, const comm::Options& options, const comm::DeviceGroup::OnStream& on) const;

 private:
  // A range of the dimension in a tensor or in a message: a run of bytes for each index of the dimensions before it.
  using Block = device::Streams::Runs;
  struct Move {
    Block to;
    Block from;
    std::size_t bytes = 0;  // of each run
  };
  void copy(const std::vector<Move>& moves, const comm::DeviceGroup::OnStream& on) const;
  void add(const Move& move, const comm::DeviceGroup::OnStream& on) const;

  device::Kind device_;
  std::size_t outer_ = 1;
  DType dtype_ = DType::f32;
  bool reduces_ = false;
  std::byte* output_ = nullptr;
  std::size_t output_bytes_ = 0;
  std::vector<Move> before_;  // the messages, and the rank's own rows
  std::vector<comm::Swap> swaps_;
  std::vector<Move> after_;
};

}  // namespace trireme::runtime
