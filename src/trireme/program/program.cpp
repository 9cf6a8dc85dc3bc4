#include "trireme/program/program.h"

#include <algorithm>
#include <array>

namespace trireme::program {

const char* name_of(Category category) {
  constexpr std::array<const char*, kCategories> names = {"weights",     "gradients", "optimizer",
                                                          "activations", "workspace", "staging"};
  return names[static_cast<std::size_t>(category)];
}

const char* tier_name(int tier) {
  constexpr std::array<const char*, kTiers> names = {"device", "host", "disk"};
  return names[static_cast<std::size_t>(tier)];
}

std::size_t aligned(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

int Program::streams() const {
  std::int32_t last = 0;
  for (const Instruction& i : instructions) last = std::max(last, i.stream);
  return last + 1;
}

int Program::events() const {
  std::int32_t last = -1;
  for (const Instruction& i : instructions) last = std::max(last, i.records);
  return last + 1;
}

bool Program::moves_on_disk(const Instruction& instruction) const {
  if (!instruction.moves()) return false;
  const Operand& there =
      instruction.kind == Instruction::Kind::store ? instruction.outputs.front() : instruction.inputs.front();
  return buffers[static_cast<std::size_t>(there.buffer)].tier == kDiskTier;
}

StateLayout lay_out(const ir::Module& module, std::size_t staging_bytes) {
  StateLayout layout;
  for (const ir::State& state : module.states) {
    std::size_t& end = state.tier == 0 ? layout.bytes : layout.tier_bytes[static_cast<std::size_t>(state.tier)];
    layout.offsets.push_back(end);
    if (!state.step_local) end += aligned(state.storage_bytes(), state.tier == 0 ? kAlignment : kPage);
  }
  if (staging_bytes > 0) {
    layout.staging = aligned(layout.bytes, kPage);  // a disk can read from there directly
    layout.staging_bytes = staging_bytes;
    layout.bytes = layout.staging + aligned(staging_bytes);
  }
  return layout;
}

}  // namespace trireme::program
