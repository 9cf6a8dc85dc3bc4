#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"
#include "trireme/ir/partition.h"

namespace trireme::ops {

// By how much one step along a mesh axis shifts a window: so many elements of a dimension, or so many rows of the
// block.
struct Shift {
  static constexpr int kRows = -1;
  int dim = 0;
  std::int64_t by = 0;
};

// The elements of a tensor that an op makes, where random numbers are counted by the element of the whole tensor: a
// block of it that begins where the places along some mesh axes say, or some rows of such a block. Attributes of the
// op:
//
//   whole = []       the shape of the whole tensor; []: the op makes all of it
//   block = []       the shape of the block, which may reach beyond the tensor's end
//   shift_dims = []  for each place among the operands a Shift: its dimension
//   shift_by = []    and by how much
//   start = []       where the block begins before any shift, by dimension; []: at 0
//   first = 0        the element of the block's storage at which the op's own begin
class RandomWindow {
 public:
  static constexpr int kMaxRank = 8;
  static constexpr int kMaxShifts = 4;

  RandomWindow() = default;
  explicit RandomWindow(const ir::Attributes& attributes);

  bool all() const { return rank_ == 0; }
  int shifts() const { return shifts_; }

  // For elements [begin, begin + count) of what the op makes: calls f(from, count, element), where `from` counts from
  // `begin` and `element` is the number of the first in the whole tensor, those after it following; -1: beyond its end.
  template <class F>
  void each_run(std::int64_t begin, std::int64_t count, std::span<const std::int64_t> places, F&& f) const {
    std::int64_t at = first_ + begin;
    if (all()) return f(std::int64_t{0}, count, at);
    std::array<std::int64_t, kMaxRank> start{};
    for (int d = 0; d < rank_; ++d) start[static_cast<std::size_t>(d)] = start_[d];
    for (int s = 0; s < shifts_; ++s) {
      const std::int64_t by = by_[s] * places[static_cast<std::size_t>(s)];
      if (dims_[s] == Shift::kRows)
        at += by * (rank_ > 1 ? block_[rank_ - 1] : 1);
      else
        start[static_cast<std::size_t>(dims_[s])] += by;
    }
    const std::int64_t width = block_[rank_ - 1];
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t column = (at + done) % width;
      const std::int64_t run = std::min(count - done, width - column);
      std::int64_t row = (at + done) / width;
      std::int64_t element = 0;
      std::int64_t stride = 1;
      bool there = true;
      for (int d = rank_ - 2; d >= 0; --d) {
        const std::int64_t i = row % block_[d] + start[static_cast<std::size_t>(d)];
        row /= block_[d];
        there = there && i < whole_[d];
        stride *= d + 2 == rank_ ? whole_[rank_ - 1] : whole_[d + 1];
        element += i * stride;
      }
      there = there && row == 0;
      const std::int64_t from = column + start[static_cast<std::size_t>(rank_ - 1)];
      const std::int64_t left = there ? std::clamp<std::int64_t>(whole_[rank_ - 1] - from, 0, run) : 0;
      if (left > 0) f(done, left, element + from);
      if (left < run) f(done + left, run - left, std::int64_t{-1});
      done += run;
    }
  }

  // The number of one element in the whole tensor; -1: beyond its end. For a thread of a GPU.
#ifdef __CUDACC__
  __host__ __device__
#endif
      std::int64_t
      element(std::int64_t i, const std::int64_t* const* places) const {
    std::int64_t at = first_ + i;
    if (rank_ == 0) return at;
    std::int64_t start[kMaxRank] = {};
    for (int d = 0; d < rank_; ++d) start[d] = start_[d];
    for (int s = 0; s < shifts_; ++s) {
      const std::int64_t by = by_[s] * *places[s];
      if (dims_[s] < 0)
        at += by * (rank_ > 1 ? block_[rank_ - 1] : 1);
      else
        start[dims_[s]] += by;
    }
    std::int64_t element = 0;
    std::int64_t stride = 1;
    for (int d = rank_ - 1; d >= 0; --d) {
      const std::int64_t index = at % block_[d] + start[d];
      at /= block_[d];
      if (index >= whole_[d]) return -1;
      element += index * stride;
      stride *= whole_[d];
    }
    return at == 0 ? element : -1;
  }

 private:
  int rank_ = 0;
  int shifts_ = 0;
  std::int64_t first_ = 0;
  std::int64_t whole_[kMaxRank] = {};
  std::int64_t block_[kMaxRank] = {};
  std::int64_t start_[kMaxRank] = {};
  int dims_[kMaxShifts] = {};
  std::int64_t by_[kMaxShifts] = {};
};

// The attributes of a window, for an op's definition.
void add_window(std::vector<ir::AttributeSpec>& attributes);
// Throws where they contradict one another, or do not go with so many places.
void check_window(const ir::Attributes& attributes, std::size_t places);

// What changes in the attributes of an op that makes all of a tensor, or a shard of it, for it to make `shape` instead:
// of `whole` the rows or the block `block`, which each further place shifts as given.
ir::Attributes in_shard(const ir::Attributes& attributes, const Shape& whole, const Shape& block, const Shape& shape,
                        std::span<const Shift> shifts);

// The same for an op whose output `output` is sharded over mesh axes: adds the places along them to `inputs`. The
// window is that of the dimensions from `from` on.
ir::Attributes partition_window(ir::PartitionContext& context, std::size_t output, std::vector<ir::ValueId>& inputs,
                                int from = 0);

}  // namespace trireme::ops
