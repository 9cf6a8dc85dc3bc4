#include <algorithm>
#include <cstdint>

#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/trial.h"

namespace trireme::device::cuda {
namespace {

constexpr int kThreads = 256;

// Adds to `count` how many 16-byte words, and bytes after the last of them, differ.
__global__ void differences_kernel(const std::byte* a, const std::byte* b, std::size_t bytes,
                                   unsigned long long* count) {
  unsigned long long own = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t words = bytes / 16;
  for (std::size_t i = first; i < words; i += step) {
    const uint4 x = reinterpret_cast<const uint4*>(a)[i];
    const uint4 y = reinterpret_cast<const uint4*>(b)[i];
    own += x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
  }
  for (std::size_t i = 16 * words + first; i < bytes; i += step) own += a[i] != b[i];
  if (own > 0) atomicAdd(count, own);
}

}  // namespace

void fill_with_noise(std::byte* to, std::size_t bytes, DType dtype) {
  std::vector<std::uint16_t> noise(std::min(bytes, std::size_t{4} << 20) / 2);
  std::uint64_t state = 1;
  for (std::uint16_t& n : noise) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto bits = static_cast<std::uint32_t>(state >> 40);
    // Between 2⁻³ and 2 in magnitude, of either sign; f32 reads two neighbours as one of about that size.
    const std::uint32_t exponent = dtype == DType::f16 ? 12 + bits % 4 : 124 + bits % 4;
    const int mantissa = dtype == DType::f16 ? 10 : 7;
    n = static_cast<std::uint16_t>((bits >> 23 & 1) << 15 | exponent << mantissa |
                                   (bits >> 4 & ((1U << mantissa) - 1)));
  }
  const std::size_t block = noise.size() * 2;
  to_device(to, noise.data(), block);
  for (std::size_t at = block; at < bytes; at += block) to_device(to + at, to, std::min(block, bytes - at));
}

bool SameBits::check(Streams& streams) {
  if (!has_first_) {
    for (const Result& r : results_) streams.copy(r.first, r.data, r.bytes);
    streams.synchronize();
    has_first_ = true;
    return true;
  }
  const auto stream = static_cast<cudaStream_t>(streams.native());
  TRI_CUDA(cudaMemsetAsync(count_, 0, sizeof *count_, stream));
  for (const Result& r : results_) {
    const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(r.bytes / (16 * kThreads), 1, 1024));
    differences_kernel<<<blocks, kThreads, 0, stream>>>(r.data, r.first, r.bytes, count_);
    launched("differences");
  }
  streams.synchronize();
  unsigned long long differences = 0;
  to_host(&differences, count_, sizeof differences);
  return differences == 0;
}

}  // namespace trireme::device::cuda
