#include "trireme/runtime/timeline.h"

#include "trireme/ir/axes.h"
#include "trireme/program/print.h"

namespace trireme::runtime {

using program::Instruction;

Timeline::Timeline(const program::Program& program, bool finely)
    : program_(program), finely_(finely), comm_events_(static_cast<std::size_t>(program.events()), program::kNone) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (const Instruction& instruction = program.instructions[i];
        instruction.communicates() && instruction.records != program::kNone)
      comm_events_[static_cast<std::size_t>(instruction.records)] = static_cast<std::int32_t>(i);
  choose_points();
}

std::size_t Timeline::phase_of(std::size_t i) const {
  const ir::Phase phase = program_.instructions[i].phase;
  const bool together = !finely_ && phase == ir::Phase::weight_gradient;
  return static_cast<std::size_t>(together ? ir::Phase::input_gradient : phase);
}

void Timeline::choose_points() {
  const std::size_t size = program_.instructions.size();
  point_of_.assign(size, program::kNone);
  starts_.clear();
  for (std::size_t i = 0; i < size && trace_ == nullptr; ++i)
    if (program_.instructions[i].stream == 0 && (starts_.empty() || phase_of(i) != phase_of(starts_.back()))) {
      point_of_[i] = static_cast<std::int32_t>(starts_.size());
      starts_.push_back(i);
    }
  last_ = trace_ == nullptr ? starts_.size() : 2 * size;
}

void Timeline::set_trace(Trace* trace) {
  trace_ = trace;
  choose_points();
  labels_.clear();
  if (trace == nullptr) return;
  for (const Instruction& instruction : program_.instructions)
    labels_.push_back(
        trace->label(program::kind_of(instruction) + (instruction.on_host ? "@host " : " ") + instruction.name,
                     ir::name_of(instruction.phase)));
}

void Timeline::start() {
  phase_seconds_ = {};
  wait_seconds_ = {};
  exposed_comm_ = 0;
  idle_ = 0;
}

bool Timeline::is_between_stages(std::size_t i) const {
  const Instruction& instruction = program_.instructions[i];
  return instruction.between_stages() || (instruction.kind == Instruction::Kind::collective &&
                                          instruction.attributes.text("axis") == ir::kPipelineAxis);
}

void Timeline::waited(std::size_t i, std::int32_t event, double seconds) {
  wait_seconds_[phase_of(i)] += seconds;
  if (const std::int32_t from = comm_events_[static_cast<std::size_t>(event)]; from != program::kNone)
    count_exposed(static_cast<std::size_t>(from), seconds);
}

// Of the phase it is no part of what was computed.
void Timeline::communicated(std::size_t i, double seconds) {
  wait_seconds_[phase_of(i)] += seconds;
  count_exposed(i, seconds);
}

void Timeline::waited_for(std::size_t stream, double seconds) {
  if (program::is_comm_stream(static_cast<std::int32_t>(stream))) exposed_comm_ += seconds;
}

void Timeline::read(const device::Streams& streams) {
  for (std::size_t p = 0; p < starts_.size(); ++p) phase_seconds_[phase_of(starts_[p])] += streams.seconds(p, p + 1);
  if (trace_ == nullptr) {
    for (std::size_t phase = 0; phase < phase_seconds_.size(); ++phase) phase_seconds_[phase] -= wait_seconds_[phase];
    return;
  }
  const auto at = [&, end = Trace::Clock::now()](std::size_t timestamp) {
    const std::chrono::duration<double> before(streams.seconds(timestamp, last_));
    return end - std::chrono::duration_cast<Trace::Clock::duration>(before);
  };
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const std::int32_t stream = program_.instructions[i].stream;
    trace_->record({labels_[i], stream, at(2 * i), at(2 * i + 1)});
    if (stream == 0 && !program_.instructions[i].communicates())
      phase_seconds_[phase_of(i)] += streams.seconds(2 * i, 2 * i + 1);
  }
}

}  // namespace trireme::runtime
