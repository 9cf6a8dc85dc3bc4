#pragma once
#include <memory>
#include <span>
#include <vector>

#include "trireme/device/arena.h"
#include "trireme/device/host_block.h"
#include "trireme/device/stream.h"
#include "trireme/program/program.h"

namespace trireme::runtime {

// Copies of a program's inputs and outputs in the host's memory. Where work is asynchronous,
// inputs wait for it in memory of their own, and small outputs come to such memory at the end of every run.
class Staging {
 public:
  // All of them must outlive it.
  Staging(const program::Program& program, const device::Arena& arena, bool asynchronous);

  void bind(std::size_t i, const std::byte* data) { inputs_[i].bound = data; }
  // Throws when an input is not bound.
  void check_bound() const;

  // Before a run: copies what is bound to where it waits.
  void stage(const device::Streams& streams, ThreadPool& pool);
  // Where input i is copied from.
  const std::byte* source(std::size_t i, const device::Streams& streams) const;
  // A large input before all else is copied by itself before a captured region is replayed, from where it is bound if
  // the device can read that; what is captured has one address for good.
  bool is_ahead(std::size_t i) const { return inputs_[i].ahead; }
  void copy_ahead(device::Streams& streams) const;

  // On stream 0, at its end.
  void fetch_outputs(device::Streams& streams) const;
  // In the host's memory, until the next run. By number in Program::outputs.
  std::span<const std::byte> output(std::size_t o) const;

 private:
  struct Input {
    const std::byte* bound = nullptr;
    std::byte* staged = nullptr;  // null: read where it is bound
    bool ahead = false;
  };
  std::size_t offset_of(std::size_t o) const;

  const program::Program& program_;
  const device::Arena& arena_;
  std::vector<Input> inputs_;  // by instruction
  std::unique_ptr<device::HostBlock> block_;
  std::vector<std::byte*> early_;                        // by output: where it comes by itself; null: it does not
  mutable std::vector<std::vector<std::byte>> fetched_;  // by output, when asked for; empty: the arena is the host's
};

}  // namespace trireme::runtime
