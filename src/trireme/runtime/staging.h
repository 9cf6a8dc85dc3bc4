#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/device/arena.h"
#include "trireme/device/host_block.h"
#include "trireme/device/stream.h"
#include "trireme/program/program.h"

namespace trireme::runtime {

// The step of an input that no step owns.
inline constexpr std::int64_t kNoStep = -1;

// Copies of a program's inputs and outputs in the host's memory. Where work is asynchronous,
// inputs wait for it in memory of their own, and small outputs come to such memory at the end of every run. A large
// input that is known one run ahead comes to the device while that run computes.
//
// That copy belongs to two runs, so no program has it, and neither the checker nor the simulator sees it. It is ordered
// here, and nowhere else:
//   - it writes memory of its own, outside the arena, which no instruction names: the second copy;
//   - that is read on stream 0 alone, before anything else of a run; `copy_expected` follows by an event of stream 0,
//     so the second copy is not written over before it was read;
//   - a run ends when all streams are idle, so the next one finds the second copy whole;
//   - it is read only for the step that it was copied for, in the run that follows the copy, unless that run failed.
class Staging {
 public:
  // All of them must outlive it.
  Staging(const program::Program& program, const device::Arena& arena, bool asynchronous);

  // As Executor's calls of these names.
  const TensorType* type_of(std::string_view input) const;  // null: there is no such input
  void bind(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step);
  void expect(std::string_view name, int micro, std::span<const std::byte> data, std::int64_t step,
              const device::Streams& streams);
  std::span<const std::byte> output(std::string_view name, int micro) const;

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

  // Where an input may come ahead, it does so on a stream and by an event of its own, which this adds to the others. Of
  // other inputs than those that are copied ahead, of memory that the device cannot read, and where the device has no
  // room for a second copy, nothing comes of `expect`.
  void add_stream(device::StreamShape& shape);
  device::Streams::Set own_streams() const { return ahead_stream_ == 0 ? 0U : 1U << ahead_stream_; }
  // Starts to copy what is expected. It comes after `copy_ahead`, which reads the memory that this fills.
  void copy_expected(device::Streams& streams);
  // After a run, when no stream has work: what was copied during it is there, unless the run failed.
  void settle(bool failed);

  // On stream 0, at its end.
  void fetch_outputs(device::Streams& streams) const;

 private:
  struct Input {
    const std::byte* bound = nullptr;
    std::int64_t bound_step = kNoStep;
    std::byte* staged = nullptr;  // null: read where it is bound
    bool ahead = false;
    const std::byte* expected = nullptr;  // to be copied during the next run
    std::int64_t expected_step = kNoStep;
    std::int64_t on_its_way = kNoStep;      // the step of what is copied during this run
    std::int64_t there = kNoStep;           // the step of what `second` holds
    std::unique_ptr<device::Arena> second;  // on the device; null: nothing was expected yet
  };
  template <class F>
  void each_reader(std::string_view name, int micro, std::size_t bytes, F&& body) const;
  std::size_t offset_of(std::size_t o) const;

  const program::Program& program_;
  const device::Arena& arena_;
  std::vector<Input> inputs_;     // by instruction
  bool can_expect_ = false;       // there is an input that may come ahead
  std::size_t ahead_stream_ = 0;  // 0: none does
  std::size_t ahead_event_ = 0;
  bool full_ = false;  // the device has no room for second copies
  std::unique_ptr<device::HostBlock> block_;
  std::vector<std::byte*> early_;                        // by output: where it comes by itself; null: it does not
  mutable std::vector<std::vector<std::byte>> fetched_;  // by output, when asked for; empty: the arena is the host's
};

// Bytes of the device that inputs which come ahead take, in addition to the arena, at most.
std::size_t bytes_ahead(const program::Program& program);

}  // namespace trireme::runtime
