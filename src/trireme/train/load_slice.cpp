#include "trireme/train/load_slice.h"

#include <vector>

namespace trireme::train {

void load_slice(Rank& rank, const ir::State& state,
                const std::function<void(const ir::Slice& slice, std::span<std::byte> out)>& read) {
  const ir::Slice slice = rank.slice_of(state);
  if (slice.empty()) return;
  const std::size_t bytes = TensorType{state.type.dtype, slice.extent}.bytes();
  if (const std::span<std::byte> resident = rank.resident_state(state.name); resident.size() == bytes) {
    read(slice, resident);
    return;
  }
  std::vector<std::byte> block(bytes);
  read(slice, block);
  // Padding follows the last row, so that the rows there are come first.
  rank.write_state(state.name, 0, block);
}

}  // namespace trireme::train
