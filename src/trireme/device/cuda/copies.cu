#include <cstdint>

#include "trireme/device/cuda/block_table.cuh"
#include "trireme/device/cuda/copies.h"

namespace trireme::device::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kPerBlock = 16384;  // bytes

struct Entry {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
  unsigned first_block;
  int unit;  // bytes moved at once: 16, 4 or 1
};

constexpr int kMax = 512;  // in a launch: as parameters of the kernel they need no copy of their own
struct Table {
  int count;
  Entry entries[kMax];
};
static_assert(sizeof(Table) <= 32764);

template <class T>
__device__ __forceinline__ void move(const Entry& e) {
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x - e.first_block) * kPerBlock;
  const std::size_t end = begin + kPerBlock < e.bytes ? begin + kPerBlock : e.bytes;
  for (std::size_t i = begin + threadIdx.x * sizeof(T); i < end; i += kThreads * sizeof(T))
    *reinterpret_cast<T*>(e.to + i) = *reinterpret_cast<const T*>(e.from + i);
}

__global__ void copies_kernel(const __grid_constant__ Table t) {
  const Entry& e = entry_of_block(t.entries, t.count);
  if (e.unit == 16)
    move<uint4>(e);
  else if (e.unit == 4)
    move<unsigned>(e);
  else
    move<unsigned char>(e);
}

}  // namespace

void launch_copies(cudaStream_t stream, std::span<const Streams::Copy> copies) {
  Table table{};
  unsigned blocks = 0;
  const auto flush = [&] {
    if (blocks > 0) copies_kernel<<<blocks, kThreads, 0, stream>>>(table);
    launched("copies");
    table.count = 0;
    blocks = 0;
  };
  for (const Streams::Copy& copy : copies) {
    if (copy.bytes == 0) continue;
    if (table.count == kMax) flush();
    Entry& e = table.entries[table.count++];
    e = {static_cast<std::byte*>(copy.to), static_cast<const std::byte*>(copy.from), copy.bytes, blocks, 1};
    const std::uintptr_t places =
        reinterpret_cast<std::uintptr_t>(copy.to) | reinterpret_cast<std::uintptr_t>(copy.from) | copy.bytes;
    if (places % 16 == 0)
      e.unit = 16;
    else if (places % 4 == 0)
      e.unit = 4;
    blocks += static_cast<unsigned>((copy.bytes + kPerBlock - 1) / kPerBlock);
  }
  flush();
}

}  // namespace trireme::device::cuda
