#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/compress/take_largest.h"
#include "trireme/ops/cuda/common.h"

// take_largest and add_taken. Atomics count, in integers: the result is the same whatever their order.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 4096;  // elements that a block looks through, in order
static_assert(TakenLayout::kSegment % kChunk == 0);

// Orders magnitudes, with NaN above all.
__device__ __forceinline__ std::uint32_t key_of(float x) { return __float_as_uint(x) & 0x7fffffffU; }

constexpr int kDigits = 3;
__device__ __forceinline__ int shift_of(int digit) { return digit == 0 ? 21 : digit == 1 ? 10 : 0; }
__device__ __forceinline__ std::uint32_t mask_of(int digit) { return digit == 1 ? 2047U : 1023U; }
constexpr int kBins = 2048;

// The count-th largest key, found digit by digit from the top, and how many of the keys equal to it are among the
// largest.
struct Threshold {
  std::uint32_t key, known;
  std::int64_t left;
};

struct Scratch {
  Threshold* threshold;
  std::int32_t* histogram;  // [digit][bin]
  std::int64_t* larger;     // by chunk: how many; then how many before it
  std::int64_t* equal;

  Scratch(void* workspace, std::int64_t chunks)
      : threshold(static_cast<Threshold*>(workspace)),
        histogram(reinterpret_cast<std::int32_t*>(threshold + 1)),
        larger(reinterpret_cast<std::int64_t*>(histogram + kDigits * kBins)),
        equal(larger + chunks + 1) {}
  static std::size_t bytes(std::int64_t chunks) {
    return sizeof(Threshold) + kDigits * kBins * sizeof(std::int32_t) +
           2 * static_cast<std::size_t>(chunks + 1) * sizeof(std::int64_t);
  }
};
static_assert(sizeof(Threshold) == 16);

template <class T>
__global__ void update_kernel(const T* x, const float* velocity, const float* waiting, const float* times, float decay,
                              float* new_velocity, float* new_waiting, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const float weight = times == nullptr ? 1.0F : *times;
  const float v = fmaf(decay, velocity[i], __fmul_rn(weight, wide(x[i])));
  new_velocity[i] = v;
  if (waiting != nullptr) new_waiting[i] = __fadd_rn(v, waiting[i]);
}

__global__ void histogram_kernel(const float* v, std::int64_t n, int digit, Scratch s) {
  __shared__ std::int32_t bins[kBins];
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const std::uint32_t known = digit == 0 ? 0 : s.threshold->known, key = digit == 0 ? 0 : s.threshold->key;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const std::uint32_t own = key_of(v[i]);
    if ((own & known) == key) atomicAdd(bins + (own >> shift_of(digit) & mask_of(digit)), 1);
  }
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads)
    if (bins[b] != 0) atomicAdd(s.histogram + digit * kBins + b, bins[b]);
}

__global__ void settle_kernel(std::int64_t count, int digit, Scratch s) {
  Threshold t = digit == 0 ? Threshold{0, 0, count} : *s.threshold;
  const std::int32_t* bins = s.histogram + digit * kBins;
  std::uint32_t d = mask_of(digit);
  while (bins[d] < t.left) t.left -= bins[d--];
  t.key |= d << shift_of(digit);
  t.known |= mask_of(digit) << shift_of(digit);
  *s.threshold = t;
}

// How many of a chunk are larger than the threshold, and how many equal.
__global__ void count_kernel(const float* v, std::int64_t n, Scratch s) {
  __shared__ std::int32_t shared[32];
  const std::uint32_t key = s.threshold->key;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  std::int32_t larger = 0, equal = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    larger += key_of(v[i]) > key ? 1 : 0;
    equal += key_of(v[i]) == key ? 1 : 0;
  }
  larger = block_reduce<Add>(larger, shared);
  equal = block_reduce<Add>(equal, shared);
  if (threadIdx.x != 0) return;
  s.larger[blockIdx.x] = larger;
  s.equal[blockIdx.x] = equal;
}

// Counts of chunks become counts before them; one thread, since there are few.
__global__ void before_kernel(std::int64_t chunks, Scratch s) {
  std::int64_t* counts = threadIdx.x == 0 ? s.larger : s.equal;
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c <= chunks; ++c) {
    const std::int64_t own = c < chunks ? counts[c] : 0;
    counts[c] = sum;
    sum += own;
  }
}

// How many are taken before a place that has so many before it.
__device__ __forceinline__ std::int64_t taken_before(std::int64_t larger, std::int64_t equal, std::int64_t equals) {
  return larger + (equal < equals ? equal : equals);
}

__global__ void take_kernel(float* v, float* velocity, bool waits, bool mask, std::int64_t n, TakenLayout l,
                            std::uint8_t* taken, Scratch s) {
  __shared__ std::int32_t sums[2][kThreads / 32];
  const std::uint32_t key = s.threshold->key;
  const std::int64_t equals = s.threshold->left;
  std::int64_t larger = s.larger[blockIdx.x], equal = s.equal[blockIdx.x];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t at = blockIdx.x * kChunk; at < (blockIdx.x + 1) * kChunk && at < n; at += kThreads) {
    const std::int64_t i = at + threadIdx.x;
    const std::uint32_t own = i < n ? key_of(v[i]) : 0;
    const bool is_larger = i < n && own > key, is_equal = i < n && own == key;
    const unsigned larger_bits = __ballot_sync(0xffffffffU, is_larger);
    const unsigned equal_bits = __ballot_sync(0xffffffffU, is_equal);
    __syncthreads();
    if (lane == 0) {
      sums[0][warp] = __popc(larger_bits);
      sums[1][warp] = __popc(equal_bits);
    }
    __syncthreads();
    std::int64_t larger_here = larger, equal_here = equal;
    for (unsigned w = 0; w < kThreads / 32; ++w) {
      if (w < warp) larger_here += sums[0][w];
      if (w < warp) equal_here += sums[1][w];
      larger += sums[0][w];
      equal += sums[1][w];
    }
    const unsigned before = (1U << lane) - 1U;
    larger_here += __popc(larger_bits & before);
    equal_here += __popc(equal_bits & before);
    if (!is_larger && !(is_equal && equal_here < equals)) continue;
    const std::int64_t k = taken_before(larger_here, equal_here, equals);
    reinterpret_cast<float*>(taken + l.values)[k] = v[i];
    reinterpret_cast<std::uint16_t*>(taken + l.indices)[k] = static_cast<std::uint16_t>(i % TakenLayout::kSegment);
    if (waits) v[i] = 0;
    if (waits && mask) velocity[i] = 0;
  }
}

// How many of each segment, and the padding.
__global__ void segments_kernel(std::int64_t chunks, std::int64_t count, TakenLayout l, std::uint8_t* taken,
                                Scratch s) {
  const std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (g == 0)
    for (std::int64_t i = l.indices + 2 * count; i < l.bytes; ++i) taken[i] = 0;
  if (g >= l.segments) return;
  constexpr std::int64_t kChunks = TakenLayout::kSegment / kChunk;
  const std::int64_t equals = s.threshold->left;
  const auto before = [&](std::int64_t c) {
    c = c < chunks ? c : chunks;
    return taken_before(s.larger[c], s.equal[c], equals);
  };
  reinterpret_cast<std::int32_t*>(taken)[g] =
      static_cast<std::int32_t>(before((g + 1) * kChunks) - before(g * kChunks));
}

// A block to a segment, the parts in order.
__global__ void add_kernel(const std::uint8_t* taken, std::int64_t parts, TakenLayout l, float* y, std::int64_t n) {
  const std::int64_t begin = blockIdx.x * TakenLayout::kSegment;
  const std::int64_t end = begin + TakenLayout::kSegment < n ? begin + TakenLayout::kSegment : n;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) y[i] = 0;
  __shared__ std::int64_t shared[32];
  for (std::int64_t p = 0; p < parts; ++p) {
    const std::uint8_t* part = taken + p * l.bytes;
    const auto* held = reinterpret_cast<const std::int32_t*>(part);
    std::int64_t first = 0;
    for (std::int64_t s = threadIdx.x; s < blockIdx.x; s += blockDim.x) first += held[s];
    first = block_reduce<Add>(first, shared);
    __syncthreads();
    for (std::int64_t k = first + threadIdx.x; k < first + held[blockIdx.x]; k += blockDim.x)
      y[begin + reinterpret_cast<const std::uint16_t*>(part + l.indices)[k]] +=
          reinterpret_cast<const float*>(part + l.values)[k];
    __syncthreads();
  }
}

}  // namespace

std::size_t take_largest_workspace_cuda(const ir::KernelSpec& spec) {
  return Scratch::bytes(pieces(spec.inputs[0].elements(), kChunk));
}

std::shared_ptr<device::Kernel> prepare_take_largest_cuda(const ir::KernelSpec& spec) {
  const auto decay = static_cast<float>(spec.attributes.real("decay"));
  const std::int64_t count = spec.attributes.integer("count"), n = spec.inputs[0].elements();
  const bool mask = spec.attributes.boolean("mask");
  const TakenLayout layout(n, count);
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      const cudaStream_t stream = stream_of(launch);
      const bool waits = launch.inputs[2] != nullptr;
      const std::int64_t chunks = pieces(n, kChunk);
      const Scratch s(launch.workspace, chunks);
      auto* const velocity = launch.out<float>(1);
      float* const from = waits ? launch.out<float>(2) : velocity;
      auto* const taken = launch.out<std::uint8_t>(0);
      update_kernel<T><<<blocks(pieces(n, kThreads)), kThreads, 0, stream>>>(
          launch.in<T>(0), launch.in<float>(1), launch.in<float>(2), launch.in<float>(3), decay, velocity, from, n);
      TRI_CUDA(cudaMemsetAsync(s.histogram, 0, kDigits * kBins * sizeof(std::int32_t), stream));
      for (int digit = 0; digit < kDigits; ++digit) {
        histogram_kernel<<<blocks(chunks), kThreads, 0, stream>>>(from, n, digit, s);
        settle_kernel<<<1, 1, 0, stream>>>(count, digit, s);
      }
      count_kernel<<<blocks(chunks), kThreads, 0, stream>>>(from, n, s);
      before_kernel<<<1, 2, 0, stream>>>(chunks, s);
      segments_kernel<<<blocks(pieces(layout.segments, kThreads)), kThreads, 0, stream>>>(chunks, count, layout, taken,
                                                                                          s);
      take_kernel<<<blocks(chunks), kThreads, 0, stream>>>(from, velocity, waits, mask, n, layout, taken, s);
      device::cuda::launched("take_largest");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_add_taken_cuda(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.outputs[0].elements();
  const TakenLayout layout(n, spec.attributes.integer("count"));
  return make_kernel([=, parts = spec.inputs[0].shape[0]](const device::Launch& launch) {
    if (n == 0) return;
    add_kernel<<<blocks(layout.segments), 1024, 0, stream_of(launch)>>>(launch.in<std::uint8_t>(0), parts, layout,
                                                                        launch.out<float>(0), n);
    device::cuda::launched("add_taken");
  });
}

}  // namespace trireme::ops
