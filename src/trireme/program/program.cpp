#include "trireme/program/program.h"

#include <algorithm>
#include <array>

namespace trireme::program {

const char* name_of(Category category) {
  constexpr std::array<const char*, kCategories> names = {"weights",     "gradients", "optimizer",
                                                          "activations", "workspace", "staging"};
  return names[static_cast<std::size_t>(category)];
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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

StateLayout lay_out(const ir::Module& module, std::size_t staging_bytes) {
  StateLayout layout;
  for (const ir::State& state : module.states) {
    layout.offsets.push_back(layout.bytes);
    if (!state.step_local) layout.bytes += aligned(state.type.bytes());
  }
  if (staging_bytes > 0) {
    constexpr std::size_t kPage = 4096;  // what a disk can read from directly
    layout.staging = (layout.bytes + kPage - 1) / kPage * kPage;
    layout.staging_bytes = staging_bytes;
    layout.bytes = layout.staging + aligned(staging_bytes);
  }
  return layout;
}

}  // namespace trireme::program
