#include "trireme/program/placement.h"

#include <algorithm>
#include <bit>

#include "trireme/program/program.h"

namespace trireme::program {

void Placement::Ranges::add(std::size_t begin, std::size_t end) {
  const auto from = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                     [](const Range& r, std::size_t at) { return r.end < at; });
  auto to = from;
  while (to != ranges_.end() && to->begin <= end) {
    begin = std::min(begin, to->begin);
    end = std::max(end, to->end);
    ++to;
  }
  if (from == to) {
    ranges_.insert(from, {begin, end});
    return;
  }
  *from = {begin, end};
  ranges_.erase(from + 1, to);
}

std::size_t Placement::Ranges::lowest(std::size_t offset, std::size_t size, std::size_t alignment) const {
  auto range = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                                [](const Range& r, std::size_t at) { return r.end <= at; });
  for (; range != ranges_.end() && range->begin < offset + size; ++range)
    offset = std::max(offset, aligned(range->end, alignment));
  return offset;
}

Placement::Buffers::Buffers()
    : first_(kBlock, std::numeric_limits<std::int32_t>::max()), last_(kBlock, -1), begin_(kBlock, 0), end_(kBlock, 0) {}

void Placement::Buffers::add(const Life& life, std::size_t offset) {
  const auto at =
      std::upper_bound(begin_.begin(), begin_.begin() + static_cast<std::ptrdiff_t>(count_), offset) - begin_.begin();
  first_.insert(first_.begin() + at, life.first);
  last_.insert(last_.begin() + at, life.last);
  begin_.insert(begin_.begin() + at, offset);
  end_.insert(end_.begin() + at, offset + life.size);
  ++count_;
}

std::size_t Placement::Buffers::lowest(std::size_t offset, const Life& life, std::size_t& next) const {
  while (next < count_ && begin_[next] < offset + life.size) {
    std::uint32_t alive = 0;
    for (std::size_t j = 0; j < kBlock; ++j)
      alive |= static_cast<std::uint32_t>((first_[next + j] <= life.last) & (last_[next + j] >= life.first)) << j;
    for (; alive != 0; alive &= alive - 1) {
      const std::size_t other = next + static_cast<std::size_t>(std::countr_zero(alive));
      if (offset + life.size <= begin_[other]) {
        next = other;
        return offset;
      }
      offset = std::max(offset, aligned(end_[other], life.alignment));
    }
    next += kBlock;
  }
  return offset;
}

Placement::Placement(const std::vector<Life>& lives, std::size_t per_window)
    : lives_(lives), offsets_(lives.size(), 0) {
  std::int32_t instructions = 0;
  for (const Life& life : lives) instructions = std::max(instructions, life.last + 1);
  std::vector<std::size_t> begins(static_cast<std::size_t>(instructions), 0);
  for (const Life& life : lives) ++begins[static_cast<std::size_t>(life.first)];
  std::size_t count = per_window;
  for (std::int32_t i = 0; i < instructions; ++i) {
    if (count >= per_window) {
      windows_.emplace_back().first = i;
      count = 0;
    }
    windows_.back().last = i;
    window_at_.push_back(static_cast<std::int32_t>(windows_.size()) - 1);
    count += begins[static_cast<std::size_t>(i)];
  }
}

std::size_t Placement::lowest(const Life& life) const {
  const std::int32_t from = window_at_[static_cast<std::size_t>(life.first)];
  const std::int32_t to = window_at_[static_cast<std::size_t>(life.last)];
  std::size_t seen_from = 0;
  std::size_t seen_to = 0;
  // Each window pushes the offset up past what it has in use there, until none does.
  for (std::size_t offset = 0;;) {
    const std::size_t before = offset;
    for (std::int32_t w = from; w <= to; ++w) {
      const Window& window = windows_[static_cast<std::size_t>(w)];
      if (w != from && w != to) {
        offset = window.ever.lowest(offset, life.size, life.alignment);
        continue;
      }
      offset = window.throughout.lowest(offset, life.size, life.alignment);
      offset = window.partly.lowest(offset, life, w == from ? seen_from : seen_to);
    }
    if (offset == before) return offset;
  }
}

void Placement::add(const Life& life, std::size_t offset) {
  const std::int32_t to = window_at_[static_cast<std::size_t>(life.last)];
  for (std::int32_t w = window_at_[static_cast<std::size_t>(life.first)]; w <= to; ++w) {
    Window& window = windows_[static_cast<std::size_t>(w)];
    window.ever.add(offset, offset + life.size);
    if (life.first <= window.first && window.last <= life.last)
      window.throughout.add(offset, offset + life.size);
    else
      window.partly.add(life, offset);
  }
}

std::optional<std::size_t> Placement::run(const std::vector<std::size_t>& order, std::size_t limit) {
  for (Window& window : windows_) {
    window.partly = {};
    window.throughout = {};
    window.ever = {};
  }
  std::size_t end = 0;
  for (const std::size_t b : order) {
    const Life& life = lives_[b];
    offsets_[b] = lowest(life);
    end = std::max(end, offsets_[b] + life.size);
    if (end > limit) return std::nullopt;
    add(life, offsets_[b]);
  }
  return end;
}

}  // namespace trireme::program
