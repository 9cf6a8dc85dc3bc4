#include <cmath>

#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/cuda/common.h"

// keep_largest and ramp. The smallest rank that is kept is found digit by digit from the top; atomics count, in
// integers, so that the result is the same whatever their order.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 4096;  // elements that a block looks through, in order
constexpr int kDigits = 4;             // of eight bits
constexpr int kBins = 256;

// Numbers in the order of the elements; 0 for those that are not to be kept.
__device__ __forceinline__ std::uint32_t rank_of(float x, bool magnitude, bool candidate) {
  if (!candidate) return 0;
  const std::uint32_t bits = __float_as_uint(x);
  constexpr std::uint32_t kSign = 0x80000000U;
  if (magnitude) return (bits & ~kSign) + 1;
  const std::uint32_t rank = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return rank > 0 ? rank : 1;
}

struct Ranked {
  const float* x;
  const float* among;
  bool magnitude;
  __device__ __forceinline__ std::uint32_t at(std::int64_t i) const {
    return rank_of(x[i], magnitude, among == nullptr || among[i] != 0);
  }
};

// The smallest rank that is kept, as far as it is known, and how many of those that agree with it are kept.
struct Threshold {
  std::uint32_t rank, known;
  std::int64_t left;
};

struct Scratch {
  Threshold* threshold;
  std::int32_t* histogram;  // [digit][bin]
  std::int64_t* equal;      // by chunk: how many; then how many before it

  explicit Scratch(void* workspace)
      : threshold(static_cast<Threshold*>(workspace)),
        histogram(reinterpret_cast<std::int32_t*>(threshold + 1)),
        equal(reinterpret_cast<std::int64_t*>(histogram + kDigits * kBins)) {}
  static std::size_t bytes(std::int64_t chunks) {
    return sizeof(Threshold) + kDigits * kBins * sizeof(std::int32_t) +
           static_cast<std::size_t>(chunks) * sizeof(std::int64_t);
  }
};
static_assert(sizeof(Threshold) == 16);

__device__ __forceinline__ int shift_of(int digit) { return 24 - 8 * digit; }

__global__ void count_digit_kernel(Ranked ranks, std::int64_t n, int digit, Scratch s) {
  __shared__ std::int32_t bins[kBins];
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const std::uint32_t known = digit == 0 ? 0 : s.threshold->known, rank = digit == 0 ? 0 : s.threshold->rank;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const std::uint32_t own = ranks.at(i);
    if ((own & known) == rank) atomicAdd(bins + (own >> shift_of(digit) & 255U), 1);
  }
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads)
    if (bins[b] != 0) atomicAdd(s.histogram + digit * kBins + b, bins[b]);
}

// How many are kept follows from the fraction; with none of them the rank is above all others.
__global__ void settle_digit_kernel(const float* fraction, std::int64_t n, int digit, Scratch s) {
  Threshold t{0, 0, 0};
  if (digit == 0) {
    const double dropped = round(static_cast<double>(*fraction) * static_cast<double>(n));
    const std::int64_t whole = dropped < 0                        ? 0
                               : dropped > static_cast<double>(n) ? n
                                                                  : static_cast<std::int64_t>(dropped);
    t.left = n - whole;
  } else {
    t = *s.threshold;
  }
  if (t.left > 0) {
    const std::int32_t* bins = s.histogram + digit * kBins;
    std::uint32_t d = 255;
    while (d > 0 && bins[d] < t.left) t.left -= bins[d--];
    t.rank |= d << shift_of(digit);
  } else {
    t.rank |= 255U << shift_of(digit);
  }
  t.known |= 255U << shift_of(digit);
  *s.threshold = t;
}

__global__ void count_equal_kernel(Ranked ranks, std::int64_t n, Scratch s) {
  __shared__ std::int32_t shared[32];
  const std::uint32_t rank = s.threshold->rank;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  std::int32_t equal = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) equal += ranks.at(i) == rank ? 1 : 0;
  equal = block_reduce<Add>(equal, shared);
  if (threadIdx.x == 0) s.equal[blockIdx.x] = equal;
}

// Counts of chunks become counts before them; one thread, since there are few.
__global__ void sum_before_kernel(std::int64_t chunks, Scratch s) {
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t own = s.equal[c];
    s.equal[c] = sum;
    sum += own;
  }
}

__global__ void mark_kernel(Ranked ranks, std::int64_t n, float* y, Scratch s) {
  __shared__ std::int32_t sums[kThreads / 32];
  const std::uint32_t rank = s.threshold->rank;
  const std::int64_t equals = s.threshold->left;
  std::int64_t equal = s.equal[blockIdx.x];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t at = blockIdx.x * kChunk; at < (blockIdx.x + 1) * kChunk && at < n; at += kThreads) {
    const std::int64_t i = at + threadIdx.x;
    const std::uint32_t own = i < n ? ranks.at(i) : 0;
    const bool is_equal = i < n && own == rank;
    const unsigned bits = __ballot_sync(0xffffffffU, is_equal);
    __syncthreads();
    if (lane == 0) sums[warp] = __popc(bits);
    __syncthreads();
    std::int64_t here = equal + __popc(bits & ((1U << lane) - 1U));
    for (unsigned w = 0; w < kThreads / 32; ++w) {
      if (w < warp) here += sums[w];
      equal += sums[w];
    }
    // Rank 0 is of what is never kept.
    if (i < n) y[i] = own > 0 && (own > rank || (is_equal && here < equals)) ? 1.0F : 0.0F;
  }
}

// A thread to each group: kept is what fewer than `keep` of the group come before.
__global__ void mark_groups_kernel(Ranked ranks, std::int64_t groups, std::int64_t keep, std::int64_t of, float* y) {
  const std::int64_t g = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (g >= groups) return;
  for (std::int64_t i = g * of; i < (g + 1) * of; ++i) {
    const std::uint32_t own = ranks.at(i);
    std::int64_t before = 0;
    for (std::int64_t j = g * of; j < (g + 1) * of; ++j) {
      const std::uint32_t other = ranks.at(j);
      before += other > own || (other == own && j < i) ? 1 : 0;
    }
    y[i] = own > 0 && before < keep ? 1.0F : 0.0F;
  }
}

__global__ void ramp_kernel(const float* count, bool cubic, double to, double steps, float* y) {
  const double t = fmin(fmax(static_cast<double>(*count) / steps, 0.0), 1.0);
  const double left = 1 - t;
  *y = static_cast<float>(cubic ? to * (1 - left * left * left) : 1 - pow(1 - to, t));
}

}  // namespace

std::size_t keep_largest_workspace_cuda(const ir::KernelSpec& spec) {
  return Scratch::bytes(pieces(spec.inputs[0].elements(), kChunk));
}

std::shared_ptr<device::Kernel> prepare_keep_largest_cuda(const ir::KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].elements(), magnitude = spec.attributes.boolean("magnitude"),
                      keep = spec.attributes.integer("keep"),
                      of = spec.attributes.integer("of")](const device::Launch& launch) {
    if (n == 0) return;
    const cudaStream_t stream = stream_of(launch);
    const Ranked ranks{launch.in<float>(0), launch.in<float>(1), magnitude};
    auto* const y = launch.out<float>(0);
    if (of > 0) {
      mark_groups_kernel<<<blocks(pieces(n / of, kThreads)), kThreads, 0, stream>>>(ranks, n / of, keep, of, y);
      device::cuda::launched("keep_largest");
      return;
    }
    const std::int64_t chunks = pieces(n, kChunk);
    const Scratch s(launch.workspace);
    TRI_CUDA(cudaMemsetAsync(s.histogram, 0, kDigits * kBins * sizeof(std::int32_t), stream));
    for (int digit = 0; digit < kDigits; ++digit) {
      count_digit_kernel<<<blocks(chunks), kThreads, 0, stream>>>(ranks, n, digit, s);
      settle_digit_kernel<<<1, 1, 0, stream>>>(launch.in<float>(2), n, digit, s);
    }
    count_equal_kernel<<<blocks(chunks), kThreads, 0, stream>>>(ranks, n, s);
    sum_before_kernel<<<1, 1, 0, stream>>>(chunks, s);
    mark_kernel<<<blocks(chunks), kThreads, 0, stream>>>(ranks, n, y, s);
    device::cuda::launched("keep_largest");
  });
}

std::shared_ptr<device::Kernel> prepare_ramp_cuda(const ir::KernelSpec& spec) {
  return make_kernel([to = spec.attributes.real("to"), cubic = spec.attributes.text("kind") == "cubic",
                      steps = static_cast<double>(spec.attributes.integer("steps"))](const device::Launch& launch) {
    ramp_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<float>(0), cubic, to, steps, launch.out<float>(0));
    device::cuda::launched("ramp");
  });
}

}  // namespace trireme::ops
