#include "trireme/device/cuda/block_table.cuh"
#include "trireme/device/group_kernel.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/optimizer/clip.h"
#include "trireme/ops/optimizer/cuda_kernels.h"

// sum_squares and sum_squares_part: those of many tensors by two launches.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// Sums of chunks that a workspace holds: those of 2·10⁹ elements. A larger tensor has a workspace of its own size.
constexpr std::int64_t kChunks = std::int64_t{1} << 17;

struct Entry {
  const void* x;
  const double* before;
  void* result;  // f64 for a part, else f32
  std::int64_t n;
  unsigned first_block;
  DType dtype;
  bool part;
};

constexpr int kMax = 640;  // tensors in a launch: as parameters of the kernel they need no copy of their own
struct Table {
  double* partials;
  int count;
  Entry entries[kMax];
};
static_assert(sizeof(Table) <= 32764);

// A chunk of kSumChunk elements to a block. Squares are taken in f64 too: those of large f32 values overflow f32.
template <class T>
__device__ __forceinline__ double squares(const T* x, std::int64_t n) {
  constexpr int N = kWidest<T>;
  double sum = 0;
  const std::int64_t whole = reinterpret_cast<std::uintptr_t>(x) % 16 == 0 ? n / N * N : 0;
#pragma unroll 4
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * N; i < whole; i += kThreads * N) {
    const Pack<T, N> pack = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const double v = wide(pack.v[j]);
      sum += v * v;
    }
  }
  for (std::int64_t i = whole + threadIdx.x; i < n; i += kThreads) {
    const double v = wide(x[i]);
    sum += v * v;
  }
  return sum;
}

__global__ void chunks_kernel(const __grid_constant__ Table t) {
  __shared__ double shared[32];
  const Entry& e = device::cuda::entry_of_block(t.entries, t.count);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - e.first_block) * kSumChunk;
  const std::int64_t n = e.n - begin < kSumChunk ? e.n - begin : kSumChunk;
  double sum = 0;
  switch (e.dtype) {
    case DType::bf16: sum = squares(static_cast<const Bf16*>(e.x) + begin, n); break;
    case DType::f16: sum = squares(static_cast<const F16*>(e.x) + begin, n); break;
    default: sum = squares(static_cast<const float*>(e.x) + begin, n); break;
  }
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x == 0) t.partials[blockIdx.x] = sum;
}

// A tensor to a block. Its chunks are added in order, by one thread; all fetch them.
__global__ void join_kernel(const __grid_constant__ Table t) {
  __shared__ double shared[kThreads];
  const Entry& e = t.entries[blockIdx.x];
  const std::int64_t chunks = (e.n + kSumChunk - 1) / kSumChunk;
  double sum = e.before != nullptr ? *e.before : 0;
  for (std::int64_t c = 0; c < chunks; c += kThreads) {
    if (c + threadIdx.x < chunks) shared[threadIdx.x] = t.partials[e.first_block + c + threadIdx.x];
    __syncthreads();
    const int count = chunks - c < kThreads ? static_cast<int>(chunks - c) : kThreads;
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int k = 0; k < count; ++k) sum += shared[k];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  if (e.part)
    *static_cast<double*>(e.result) = sum;
  else
    *static_cast<float*>(e.result) = static_cast<float>(sum);
}

std::int64_t chunks_of(const ir::KernelSpec& spec) { return pieces(spec.inputs[0].elements(), kSumChunk); }

class SumSquares final : public device::GroupKernel {
 public:
  explicit SumSquares(const ir::KernelSpec& spec)
      : n_(spec.inputs[0].elements()),
        chunks_(chunks_of(spec)),
        dtype_(spec.inputs[0].dtype),
        part_(spec.outputs[0].dtype == DType::f64),
        more_(spec.inputs.size() > 1 && spec.inputs[1].present) {}

  void launch_group(std::span<device::GroupKernel* const> members, std::span<const device::Launch> launches) override {
    Table table{};
    std::int64_t chunks = 0;
    const cudaStream_t stream = stream_of(launches[0]);
    const auto flush = [&] {
      if (chunks > 0) chunks_kernel<<<blocks(chunks), kThreads, 0, stream>>>(table);
      if (table.count > 0) join_kernel<<<blocks(table.count), kThreads, 0, stream>>>(table);
      device::cuda::launched("sum_squares");
      table.count = 0;
      chunks = 0;
    };
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto& member = static_cast<const SumSquares&>(*members[i]);
      const device::Launch& launch = launches[i];
      if (table.count == kMax || chunks + member.chunks_ > kChunks) flush();
      if (table.count == 0) table.partials = static_cast<double*>(launch.workspace);
      table.entries[table.count++] = {launch.inputs[0],
                                      member.more_ ? launch.in<double>(1) : nullptr,
                                      launch.outputs[0],
                                      member.n_,
                                      static_cast<unsigned>(chunks),
                                      member.dtype_,
                                      member.part_};
      chunks += member.chunks_;
    }
    flush();
  }

 private:
  std::int64_t n_, chunks_;
  DType dtype_;
  bool part_, more_;
};

}  // namespace

std::size_t sum_squares_workspace_cuda(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(std::max(kChunks, chunks_of(spec))) * sizeof(double);
}

std::shared_ptr<device::Kernel> prepare_sum_squares_cuda(const ir::KernelSpec& spec) {
  return std::make_shared<SumSquares>(spec);
}

}  // namespace trireme::ops
