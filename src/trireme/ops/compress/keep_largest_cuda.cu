#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/compress/keep_largest.h"
#include "trireme/ops/cuda/common.h"

// keep_largest and ramp. The least that is kept is found digit by digit from the top, by counting; atomics add integers
// alone, so that masks are the CPU's, whatever the order.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 4096;  // elements that a block looks through, in order

// Digits of 11, 11 and 10 bits.
constexpr int kDigits = 3, kBins = 2048;
__device__ __forceinline__ int shift_of(int digit) { return digit == 0 ? 21 : digit == 1 ? 10 : 0; }
__device__ __forceinline__ std::uint32_t mask_of(int digit) { return digit == 2 ? 1023U : 2047U; }

// Numbers in the order of the elements; 0 for those that are not to be kept.
struct Elements {
  const float* x;
  const float* among;
  bool magnitude;

  __device__ __forceinline__ std::uint32_t rank(std::int64_t i) const {
    if (among != nullptr && among[i] == 0) return 0;
    const std::uint32_t bits = __float_as_uint(x[i]);
    constexpr std::uint32_t kSign = 0x80000000;
    if (magnitude) return (bits & ~kSign) + 1;
    const std::uint32_t ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
    return ordered > 1 ? ordered : 1;
  }
};

// The least rank that is kept, and how many of those equal to it are.
struct Least {
  std::uint32_t rank, known;
  std::int64_t left;
};
static_assert(sizeof(Least) == 16);

struct Counts {
  Least* least;
  std::int32_t* histogram;  // [digit][bin]
  std::int64_t* equal;      // by chunk: how many have the least rank; then how many before it

  explicit Counts(void* workspace)
      : least(static_cast<Least*>(workspace)),
        histogram(reinterpret_cast<std::int32_t*>(least + 1)),
        equal(reinterpret_cast<std::int64_t*>(histogram + kDigits * kBins)) {}
  static std::size_t bytes(std::int64_t chunks) {
    return sizeof(Least) + kDigits * kBins * sizeof(std::int32_t) +
           static_cast<std::size_t>(chunks) * sizeof(std::int64_t);
  }
};

__global__ void count_digits_kernel(Elements e, std::int64_t n, int digit, Counts c) {
  __shared__ std::int32_t bins[kBins];
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) bins[b] = 0;
  __syncthreads();
  const std::uint32_t known = digit == 0 ? 0 : c.least->known, rank = digit == 0 ? 0 : c.least->rank;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const std::uint32_t own = e.rank(i);
    if ((own & known) == rank) atomicAdd(bins + (own >> shift_of(digit) & mask_of(digit)), 1);
  }
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads)
    if (bins[b] != 0) atomicAdd(c.histogram + digit * kBins + b, bins[b]);
}

__global__ void settle_digit_kernel(const float* fraction, std::int64_t n, int digit, Counts c) {
  __shared__ std::int32_t bins[kBins];
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) bins[b] = c.histogram[digit * kBins + b];
  __syncthreads();
  if (threadIdx.x != 0) return;
  Least least = *c.least;
  if (digit == 0) {
    const double dropped =
        fmin(fmax(round(static_cast<double>(*fraction) * static_cast<double>(n)), 0.0), static_cast<double>(n));
    least = {0, 0, n - static_cast<std::int64_t>(dropped)};
  }
  if (least.left > 0) {
    std::uint32_t d = mask_of(digit);
    while (bins[d] < least.left) least.left -= bins[d--];
    least.rank |= d << shift_of(digit);
  } else {
    least.rank |= mask_of(digit) << shift_of(digit);  // nothing is kept: no rank is larger than all ones
  }
  least.known |= mask_of(digit) << shift_of(digit);
  *c.least = least;
}

__global__ void count_equal_kernel(Elements e, std::int64_t n, Counts c) {
  __shared__ std::int32_t shared[kThreads / 32];
  const std::uint32_t rank = c.least->rank;
  const std::int64_t begin = blockIdx.x * kChunk;
  const std::int64_t end = begin + kChunk < n ? begin + kChunk : n;
  std::int32_t equal = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) equal += e.rank(i) == rank ? 1 : 0;
  equal = block_reduce<Add>(equal, shared);
  if (threadIdx.x == 0) c.equal[blockIdx.x] = equal;
}

// Counts of chunks become counts before them; one thread, since there are few.
__global__ void count_before_kernel(std::int64_t chunks, Counts c) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::int64_t own = c.equal[i];
    c.equal[i] = sum;
    sum += own;
  }
}

__global__ void mark_kernel(Elements e, std::int64_t n, float* kept, Counts c) {
  __shared__ std::int32_t sums[kThreads / 32];
  const Least least = *c.least;
  std::int64_t equal = c.equal[blockIdx.x];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t at = blockIdx.x * kChunk; at < (blockIdx.x + 1) * kChunk && at < n; at += kThreads) {
    const std::int64_t i = at + threadIdx.x;
    const std::uint32_t own = i < n ? e.rank(i) : 0;
    const bool is_equal = i < n && own == least.rank;
    const unsigned bits = __ballot_sync(0xffffffffU, is_equal);
    __syncthreads();
    if (lane == 0) sums[warp] = __popc(bits);
    __syncthreads();
    std::int64_t before = equal + __popc(bits & ((1U << lane) - 1U));
    for (unsigned w = 0; w < kThreads / 32; ++w) {
      if (w < warp) before += sums[w];
      equal += sums[w];
    }
    if (i < n) kept[i] = own > least.rank || (is_equal && own > 0 && before < least.left) ? 1.0F : 0.0F;
  }
}

// Of each `of` consecutive elements, those that fewer than `keep` are ahead of: larger ones, and equals before them.
__global__ void mark_in_groups_kernel(Elements e, std::int64_t n, std::int64_t keep, std::int64_t of, float* kept) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::uint32_t own = e.rank(i);
  const std::int64_t begin = i / of * of;
  std::int64_t ahead = 0;
  for (std::int64_t j = begin; j < begin + of; ++j) {
    const std::uint32_t other = e.rank(j);
    ahead += other > own || (other == own && j < i) ? 1 : 0;
  }
  kept[i] = own > 0 && ahead < keep ? 1.0F : 0.0F;
}

__global__ void ramp_kernel(const float* count, double to, bool cubic, double steps, float* y) {
  const double t = fmin(fmax(static_cast<double>(*count) / steps, 0.0), 1.0), left = 1 - t;
  *y = static_cast<float>(cubic ? to * (1 - left * left * left) : 1 - pow(1 - to, t));
}

}  // namespace

std::size_t keep_largest_workspace_cuda(const ir::KernelSpec& spec) {
  return spec.attributes.integer("of") > 0 ? 0 : Counts::bytes(pieces(spec.inputs[0].elements(), kChunk));
}

std::shared_ptr<device::Kernel> prepare_keep_largest_cuda(const ir::KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].elements(), magnitude = spec.attributes.boolean("magnitude"),
                      keep = spec.attributes.integer("keep"),
                      of = spec.attributes.integer("of")](const device::Launch& launch) {
    if (n == 0) return;
    const cudaStream_t stream = stream_of(launch);
    const Elements e{launch.in<float>(0), launch.in<float>(1), magnitude};
    auto* const kept = launch.out<float>(0);
    if (of > 0) {
      mark_in_groups_kernel<<<blocks(pieces(n, kThreads)), kThreads, 0, stream>>>(e, n, keep, of, kept);
    } else {
      const std::int64_t chunks = pieces(n, kChunk);
      const Counts c(launch.workspace);
      TRI_CUDA(cudaMemsetAsync(c.histogram, 0, kDigits * kBins * sizeof(std::int32_t), stream));
      for (int digit = 0; digit < kDigits; ++digit) {
        count_digits_kernel<<<blocks(chunks), kThreads, 0, stream>>>(e, n, digit, c);
        settle_digit_kernel<<<1, kThreads, 0, stream>>>(launch.in<float>(2), n, digit, c);
      }
      count_equal_kernel<<<blocks(chunks), kThreads, 0, stream>>>(e, n, c);
      count_before_kernel<<<1, 1, 0, stream>>>(chunks, c);
      mark_kernel<<<blocks(chunks), kThreads, 0, stream>>>(e, n, kept, c);
    }
    device::cuda::launched("keep_largest");
  });
}

std::shared_ptr<device::Kernel> prepare_ramp_cuda(const ir::KernelSpec& spec) {
  return make_kernel([to = spec.attributes.real("to"), cubic = spec.attributes.text("kind") == "cubic",
                      steps = static_cast<double>(spec.attributes.integer("steps"))](const device::Launch& launch) {
    ramp_kernel<<<1, 1, 0, stream_of(launch)>>>(launch.in<float>(0), to, cubic, steps, launch.out<float>(0));
    device::cuda::launched("ramp");
  });
}

}  // namespace trireme::ops
