#include "trireme/train/load_slice.h"

#include <vector>

namespace trireme::train {

void load_slice(Rank& rank, const ir::State& state,
                const std::function<void(const ir::Slice& slice, std::span<std::byte> out)>& read) {
  const std::size_t element = size_of(state.type.dtype);
  const std::size_t pitch = static_cast<std::size_t>(ir::row_pitch(state)) * element;
  const std::span<std::byte> resident = rank.resident_state(state.name);
  std::vector<std::byte> block;
  for (const ir::StoredRows& stored : rank.stored_rows(state)) {
    if (stored.rows.empty()) continue;
    const std::size_t bytes = TensorType{state.type.dtype, stored.rows.extent}.bytes();
    const std::size_t first = static_cast<std::size_t>(stored.first) * pitch;
    const std::size_t width =
        stored.rows.extent.rank() == 2 ? static_cast<std::size_t>(stored.rows.extent[1]) * element : pitch;
    if (!resident.empty() && width == pitch) {
      read(stored.rows, resident.subspan(first, bytes));
      continue;
    }
    block.resize(bytes);
    read(stored.rows, block);
    if (width == pitch) {
      rank.write_state(state.name, first, block);
      continue;
    }
    // Rows are padded.
    for (std::size_t row = 0; row * width < bytes; ++row)
      rank.write_state(state.name, first + row * pitch, std::span(block).subspan(row * width, width));
  }
}

}  // namespace trireme::train
