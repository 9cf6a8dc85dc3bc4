#include "trireme/runtime/executor.h"

#include <algorithm>
#include <cstring>

#include "trireme/core/error.h"

// What there is before the first run, and what comes out of one.
namespace trireme::runtime {

using program::Instruction;

Executor::Executor(const program::Program& program, device::Arena& arena, ThreadPool& pool, const Tiers& tiers,
                   ProcessGroups* ranks, device::Algorithms* algorithms)
    : program_(program),
      arena_(arena),
      pool_(pool),
      ranks_(ranks),
      prepared_(program, {arena, pool, tiers, ranks, algorithms}),
      failure_(program),
      timeline_(program, program.device == device::Kind::cpu),
      collectives_(program, prepared_, ranks),
      staging_(program, arena, program.device != device::Kind::cpu) {
  const auto run = [](void* self, std::size_t i) { static_cast<Executor*>(self)->run_from(i); };
  for (std::size_t i = 0; i < prepared_.size(); ++i)
    work_.push_back({run, this, i, static_cast<std::size_t>(program.instructions[i].stream)});
  make_streams();
  const bool to_disk = std::any_of(program.instructions.begin(), program.instructions.end(),
                                   [&](const Instruction& i) { return is_disk_copy(program, i); });
  const auto ended = [this](std::size_t i) {
    timeline_.end(i, *streams_);
    if (first_bad_ != nullptr) look_at(i);
  };
  if (to_disk) disk_ = DiskCopies::on({program, prepared_, *tiers.disk, failure_, ended});
}

Executor::~Executor() = default;

// Also when the trace changes, which wants more timestamps.
void Executor::make_streams() {
  device::StreamShape shape{.streams = static_cast<std::size_t>(program_.streams()),
                            .events = static_cast<std::size_t>(program_.events()) + collectives_.events(),
                            .timestamps = timeline_.timestamps(),
                            .yielding = program::kGradientStream};
  shape.capacity.assign(shape.streams, 0);
  for (const Instruction& instruction : program_.instructions)
    ++shape.capacity[static_cast<std::size_t>(instruction.stream)];
  staging_.add_stream(shape);
  captured_.clear();
  streams_ = device::make_streams(program_.device, shape);
}

const TensorType& Executor::input_type(std::string_view name) const {
  const TensorType* type = staging_.type_of(name);
  if (type == nullptr) fail("program '{}' has no input '{}'", program_.name, name);
  return *type;
}

float Executor::scalar(std::string_view name, int micro) const {
  const auto bytes = output(name, micro);
  TRI_CHECK(bytes.size() == sizeof(float), "output '{}' is not an f32 scalar", name);
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void Executor::set_trace(Trace* trace) {
  timeline_.set_trace(trace);
  make_streams();
}

}  // namespace trireme::runtime
