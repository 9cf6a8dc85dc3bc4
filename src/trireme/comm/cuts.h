#pragma once
#include <cstring>
#include <span>

#include "trireme/comm/types.h"

namespace trireme::comm {

// The part of a list of cuts that belongs to one rank, as one run of bytes: its slice of the first tensor, of the
// second, … without padding. This is how slices travel.

inline std::int64_t slice_begin(const Cut& cut, int rank) {
  const std::int64_t begin = rank * cut.slice_count;
  return begin < cut.count ? begin : cut.count;
}
inline std::int64_t slice_extent(const Cut& cut, int rank) {
  return slice_begin(cut, rank + 1) - slice_begin(cut, rank);
}

inline std::size_t bytes_of(std::span<const Cut> cuts, int rank, std::size_t element) {
  std::int64_t count = 0;
  for (const Cut& cut : cuts) count += slice_extent(cut, rank);
  return static_cast<std::size_t>(count) * element;
}
inline std::size_t total_bytes(std::span<const Cut> cuts, std::size_t element) {
  std::int64_t count = 0;
  for (const Cut& cut : cuts) count += cut.count;
  return static_cast<std::size_t>(count) * element;
}
inline std::size_t total_bytes(std::span<const Segment> segments, std::size_t element) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  return static_cast<std::size_t>(count) * element;
}

namespace detail {
// Calls f(cut, where in `whole`, bytes) for the pieces of `rank`.
template <class F>
void each_piece(std::span<const Cut> cuts, int rank, std::size_t element, F&& f) {
  for (const Cut& cut : cuts)
    if (const std::int64_t extent = slice_extent(cut, rank); extent > 0)
      f(cut, static_cast<std::byte*>(cut.whole) + static_cast<std::size_t>(slice_begin(cut, rank)) * element,
        static_cast<std::size_t>(extent) * element);
}
}  // namespace detail

// From the wholes (or this rank's slices) to one run, and back. Each gives the end of the run.
inline std::byte* pack_wholes(std::span<const Cut> cuts, int rank, std::size_t element, std::byte* to) {
  detail::each_piece(cuts, rank, element, [&](const Cut&, const std::byte* where, std::size_t bytes) {
    std::memcpy(to, where, bytes);
    to += bytes;
  });
  return to;
}
inline const std::byte* unpack_wholes(std::span<const Cut> cuts, int rank, std::size_t element, const std::byte* from) {
  detail::each_piece(cuts, rank, element, [&](const Cut&, std::byte* where, std::size_t bytes) {
    std::memcpy(where, from, bytes);
    from += bytes;
  });
  return from;
}
inline std::byte* pack_slices(std::span<const Cut> cuts, int rank, std::size_t element, std::byte* to) {
  detail::each_piece(cuts, rank, element, [&](const Cut& cut, const std::byte*, std::size_t bytes) {
    std::memcpy(to, cut.slice, bytes);
    to += bytes;
  });
  return to;
}

// Zeros where a slice reaches past its tensor.
inline void pad_slices(std::span<const Cut> cuts, int rank, std::size_t element) {
  for (const Cut& cut : cuts) {
    const auto extent = static_cast<std::size_t>(slice_extent(cut, rank));
    const auto room = static_cast<std::size_t>(cut.slice_count);
    if (extent < room) std::memset(static_cast<std::byte*>(cut.slice) + extent * element, 0, (room - extent) * element);
  }
}
inline void unpack_slices(std::span<const Cut> cuts, int rank, std::size_t element, const std::byte* from) {
  detail::each_piece(cuts, rank, element, [&](const Cut& cut, const std::byte*, std::size_t bytes) {
    std::memcpy(cut.slice, from, bytes);
    from += bytes;
  });
  pad_slices(cuts, rank, element);
}
// This rank's slices to their places in its own wholes, where they do not lie there already.
inline void place_slices(std::span<const Cut> cuts, int rank, std::size_t element) {
  detail::each_piece(cuts, rank, element, [&](const Cut& cut, std::byte* where, std::size_t bytes) {
    if (where != cut.slice) std::memcpy(where, cut.slice, bytes);
  });
}

}  // namespace trireme::comm
