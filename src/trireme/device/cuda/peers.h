#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "trireme/core/dtype.h"
#include "trireme/device/stream.h"

namespace trireme::device::cuda {

inline constexpr int kMaxPeers = 64;

// Tensors of equal size in memory that this GPU can reach.
struct Peers {
  std::array<const void*, kMaxPeers> from{};
  std::array<void*, kMaxPeers> to{};
  int sources = 0;
  int targets = 0;
};

// Every target becomes the sum (or the maximum) of all sources, taken in their order and, of narrow floats, in f32. A
// target may be a source. For f32, bf16 and f16.
void combine(const Peers& peers, std::int64_t count, DType dtype, bool maximum, void* stream);
// Adds so many runs of `elements` to others, narrow floats by way of f32.
void add_runs(const Streams::Runs& to, const Streams::Runs& from, std::int64_t elements, std::int64_t count,
              DType dtype, void* stream);
void zero(void* memory, std::size_t bytes, void* stream);

}  // namespace trireme::device::cuda
