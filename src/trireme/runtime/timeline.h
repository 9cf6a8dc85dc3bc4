#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "trireme/device/stream.h"
#include "trireme/program/program.h"
#include "trireme/runtime/trace.h"

namespace trireme::runtime {

// Where the time of a run goes: timestamps where a phase begins on the compute stream and at the end, or, while there
// is a trace, before and behind every instruction.
class Timeline {
 public:
  // `finely`: timestamps are cheap, so the two kinds of gradients, which take turns often, are distinguished.
  Timeline(const program::Program& program, bool finely);

  void set_trace(Trace* trace);
  bool traces() const { return trace_ != nullptr; }
  // How many timestamps its streams must have.
  std::size_t timestamps() const { return last_ + 1; }

  // In a run: before instruction i is issued; in its stream, when it has waited and when it is done; at the end of
  // stream 0.
  void start();
  void come_to(std::size_t i, device::Streams& streams) const {
    if (point_of_[i] != program::kNone) streams.timestamp(static_cast<std::size_t>(point_of_[i]), 0);
  }
  void begin(std::size_t i, device::Streams& streams) const { span(i, 0, streams); }
  void end(std::size_t i, device::Streams& streams) const { span(i, 1, streams); }
  void finish(device::Streams& streams) const { streams.timestamp(last_); }
  // By the thread of the compute stream: what it waited for an event before instruction i, or for a stream; and what a
  // message or a collective took of it.
  void waited(std::size_t i, std::int32_t event, double seconds);
  void waited_for(std::size_t stream, double seconds);
  void communicated(std::size_t i, double seconds);

  // Once the run is done: reads the timestamps.
  void read(const device::Streams& streams);
  const std::array<double, 4>& phase_seconds() const { return phase_seconds_; }
  const std::array<double, 4>& wait_seconds() const { return wait_seconds_; }
  double exposed_comm_seconds() const { return exposed_comm_; }
  // Of a stage of a pipeline: what it waited for messages of other stages, and for sums over them.
  double idle_seconds() const { return idle_; }

 private:
  std::size_t phase_of(std::size_t i) const;
  void count_exposed(std::size_t i, double seconds) { (is_between_stages(i) ? idle_ : exposed_comm_) += seconds; }
  bool is_between_stages(std::size_t i) const;
  void choose_points();
  void span(std::size_t i, std::size_t end, device::Streams& streams) const {
    if (trace_ != nullptr) streams.timestamp(2 * i + end, static_cast<std::size_t>(program_.instructions[i].stream));
  }

  const program::Program& program_;
  bool finely_;
  Trace* trace_ = nullptr;
  std::vector<std::uint32_t> labels_;      // by instruction, with a trace
  std::vector<std::int32_t> point_of_;     // by instruction: the timestamp before it
  std::vector<std::size_t> starts_;        // by timestamp: the instruction that begins a phase
  std::size_t last_ = 0;                   // the timestamp at the end
  std::vector<std::int32_t> comm_events_;  // by event: the instruction that communicates and records it; kNone: another
  std::array<double, 4> phase_seconds_{};
  std::array<double, 4> wait_seconds_{};
  double exposed_comm_ = 0;
  double idle_ = 0;
};

}  // namespace trireme::runtime
