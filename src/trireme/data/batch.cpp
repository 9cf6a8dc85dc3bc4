#include "trireme/core/error.h"
#include "trireme/data/dataset.h"

namespace trireme::data {

std::int64_t Batch::global_row(std::int64_t row) const {
  if (ranges.empty()) return row;
  std::int64_t before = 0;
  for (const RowRange& range : ranges) {
    if (row < before + range.count) return range.first + row - before;
    before += range.count;
  }
  fail("a batch of {} rows has no row {}", rows, row);
}

std::int64_t Batch::position(const RowRange& wanted) const {
  const auto within = [&](const RowRange& range) {
    return wanted.first >= range.first && wanted.first + wanted.count <= range.first + range.count;
  };
  if (ranges.empty() && within({0, rows})) return wanted.first;
  std::int64_t before = 0;
  for (const RowRange& range : ranges) {
    if (within(range)) return before + wanted.first - range.first;
    before += range.count;
  }
  fail("rows {} to {} of the global batch are not among the {} that were loaded", wanted.first,
       wanted.first + wanted.count, rows);
}

DataMemory& DataMemory::operator+=(const DataMemory& other) {
  held += other.held;
  mapped += other.mapped;
  return *this;
}

}  // namespace trireme::data
