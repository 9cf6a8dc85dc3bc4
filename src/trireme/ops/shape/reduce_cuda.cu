#include <cooperative_groups.h>

#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/packed.h"
#include "trireme/ops/shape/cuda_kernels.h"
#include "trireme/ops/shape/dim_groups.h"

// reduce and broadcast.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMaxGroups = 4;

// The kept or the reduced dimensions outside the inner one, as DimGroups has them.
struct Groups {
  std::int64_t extent[kMaxGroups] = {};
  std::int64_t stride[kMaxGroups] = {};
  int count = 0;

  explicit Groups(const std::vector<DimGroups::Group>& from) : count(static_cast<int>(from.size())) {
    if (from.size() > kMaxGroups) device::cuda::failed("reduce", "dimensions alternate too often");
    for (std::size_t i = 0; i < from.size(); ++i) {
      extent[i] = from[i].extent;
      stride[i] = from[i].stride;
    }
  }
  // (Indices that the compiler knows keep the arrays out of local memory.)
  __device__ __forceinline__ std::int64_t offset(std::int64_t index) const {
    if (count <= 1) return count == 0 ? 0 : index * stride[0];
    std::int64_t start = 0;
#pragma unroll
    for (int i = kMaxGroups - 1; i > 0; --i)
      if (i < count) {
        start += index % extent[i] * stride[i];
        index /= extent[i];
      }
    return start + index * stride[0];
  }
};

constexpr int kWarps = 8;
constexpr int kAhead = 8;  // loads of a thread on their way at once
constexpr std::int64_t kRowsAtOnce = kWarps * kAhead;

// An output depends on `depth` elements (inner dimension reduced) or rows (inner dimension kept), cut in chunks where
// the outputs are too few to keep a GPU busy.
struct Plan {
  DimGroups groups;
  std::int64_t outer, rows, depth, chunks;
  std::int64_t chunk_rows = 0;  // where the inner dimension is kept: a multiple of what a block reads at once
  float scale = 1;
  bool accumulate;

  explicit Plan(const ir::KernelSpec& spec)
      : groups(spec.inputs[0].shape, spec.attributes.integers("dims")),
        outer(DimGroups::count(groups.plain)),
        rows(DimGroups::count(groups.marked)),
        depth(groups.inner_marked ? rows * groups.inner : rows),
        accumulate(spec.accumulate) {
    const std::int64_t elements = spec.inputs[0].elements();
    if (groups.inner_marked)
      chunks = std::clamp<std::int64_t>(std::min(depth / 8192, 1024 / std::max<std::int64_t>(1, outer)), 1, 1024);
    else {
      const std::int64_t others = std::max<std::int64_t>(1, outer * pieces(groups.inner, kColumns));
      const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / others);
      chunk_rows = std::max<std::int64_t>(1, pieces(pieces(depth, wanted), kRowsAtOnce)) * kRowsAtOnce;
      chunks = std::max<std::int64_t>(1, pieces(depth, chunk_rows));
    }
    if (spec.attributes.text("kind") == "mean")
      scale = static_cast<float>(static_cast<double>(spec.outputs[0].elements()) /
                                 static_cast<double>(std::max<std::int64_t>(1, elements)));
  }
  static constexpr std::int64_t kColumns = 256;
  static constexpr std::int64_t kBlocks = 264;  // with all their loads on their way, enough for any GPU
  std::int64_t outputs() const { return outer * (groups.inner_marked ? 1 : groups.inner); }
  std::size_t workspace() const { return static_cast<std::size_t>(outputs() * chunks) * sizeof(float); }
};

// partials[chunk][output]
template <class Op, class T>
__global__ void inner_kernel(const T* x, Groups plain, Groups marked, std::int64_t inner, std::int64_t depth,
                             float* partials) {
  __shared__ float shared[32];
  const std::int64_t outer = gridDim.x, chunks = gridDim.y;
  const T* from = x + plain.offset(blockIdx.x);
  const std::int64_t begin = depth * blockIdx.y / chunks, end = depth * (blockIdx.y + 1) / chunks;
  float total = Op::kNeutral;
  for (std::int64_t at = begin + threadIdx.x; at < end; at += blockDim.x)
    total = Op()(total, wide(from[marked.offset(at / inner) + at % inner]));
  total = block_reduce<Op>(total, shared);
  if (threadIdx.x == 0) partials[blockIdx.y * outer + blockIdx.x] = total;
}

// Threads of a warp take neighbouring columns; the warps of a block share out the rows of its chunk.
template <class Op, int N, class T>
__global__ void rows_kernel(const T* x, Groups plain, Groups marked, std::int64_t inner, std::int64_t depth,
                            std::int64_t chunk_rows, float* partials) {
  __shared__ float shared[kWarps][32 * N];
  const std::int64_t outer = gridDim.z;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x) * N;
  const std::int64_t begin = chunk_rows * blockIdx.y;
  const std::int64_t end = begin + chunk_rows < depth ? begin + chunk_rows : depth;
  float total[N];
#pragma unroll
  for (int j = 0; j < N; ++j) total[j] = Op::kNeutral;
  if (column < inner) {
    const T* from = x + plain.offset(blockIdx.z) + column;
    constexpr bool kPairs = sizeof(T) == 2 && N == 8;  // they stay in pairs until they are added
    using Loaded = std::conditional_t<kPairs, uint4, Pack<T, N>>;
    const auto fetch = [&](std::int64_t row) { return *reinterpret_cast<const Loaded*>(from + marked.offset(row)); };
    const auto take = [&](const Loaded& loaded) {
      if constexpr (kPairs) {
        const Packed<T> pack(loaded);
#pragma unroll
        for (int j = 0; j < N; ++j) total[j] = Op()(total[j], pack[j]);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) total[j] = Op()(total[j], wide(loaded.v[j]));
      }
    };
    std::int64_t r = begin + threadIdx.y;
    for (; r + kWarps * (kAhead - 1) < end; r += kRowsAtOnce) {
      Loaded loaded[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) loaded[k] = fetch(r + kWarps * k);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) take(loaded[k]);
    }
#pragma unroll 4
    for (; r < end; r += kWarps) take(fetch(r));
  }
#pragma unroll
  for (int j = 0; j < N; ++j) shared[threadIdx.y][threadIdx.x * N + j] = total[j];
  __syncthreads();
  if (threadIdx.y != 0 || column >= inner) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    for (int w = 1; w < kWarps; ++w) total[j] = Op()(total[j], shared[w][threadIdx.x * N + j]);
    partials[(blockIdx.y * outer + blockIdx.z) * inner + column + j] = total[j];
  }
}

// Sums of the columns of a matrix in one launch: the blocks of a cluster share out the rows of kClusterColumns columns
// and the first of them joins what they found.
constexpr int kCluster = 8;
constexpr int kClusterColumns = 64;
constexpr int kClusterRows = 64;                                                   // at once, in a block
constexpr std::int64_t kClusterDepth = std::int64_t{kCluster} * kClusterRows * 4;  // below, little is gained
// From here on the two launches take no longer, since a block reads longer pieces of a row.
constexpr std::int64_t kClusterWidth = 2048;

// There are clusters from Hopper on; what is compiled for GPUs before it is never launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class Op, class T, class Out>
__global__ void cluster_kernel(const T*, std::int64_t, std::int64_t, float, bool, Out*) {
  __trap();
}
#else
template <class Op, class T, class Out>
__global__ void __cluster_dims__(1, kCluster, 1) __launch_bounds__(512, 2)
    cluster_kernel(const T* x, std::int64_t stride, std::int64_t depth, float scale, bool accumulate, Out* y) {
  constexpr int N = kWidest<T>;
  static_assert(N == 8);
  __shared__ float shared[kClusterRows][kClusterColumns + 1];
  __shared__ float totals[kClusterColumns];
  namespace cg = cooperative_groups;
  cg::cluster_group cluster = cg::this_cluster();
  const std::int64_t chunk = (depth + kCluster - 1) / kCluster;
  const std::int64_t begin = chunk * blockIdx.y;
  const std::int64_t end = begin + chunk < depth ? begin + chunk : depth;
  const T* from = x + static_cast<std::int64_t>(blockIdx.x) * kClusterColumns + threadIdx.x * N;
  float total[N];
#pragma unroll
  for (int j = 0; j < N; ++j) total[j] = Op::kNeutral;
  const auto fetch = [&](std::int64_t r) { return *reinterpret_cast<const uint4*>(from + r * stride); };
  const auto take = [&](const uint4& words) {
    const Packed<T> pack(words);
#pragma unroll
    for (int j = 0; j < N; ++j) total[j] = Op()(total[j], pack[j]);
  };
  std::int64_t r = begin + threadIdx.y;
  for (; r + kClusterRows * (kAhead - 1) < end; r += kClusterRows * kAhead) {
    uint4 pack[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) pack[k] = fetch(r + kClusterRows * k);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) take(pack[k]);
  }
#pragma unroll 4
  for (; r < end; r += kClusterRows) take(fetch(r));
#pragma unroll
  for (int j = 0; j < N; ++j) shared[threadIdx.y][threadIdx.x * N + j] = total[j];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (column < kClusterColumns) {
    float sum = shared[0][column];
#pragma unroll 8
    for (int w = 1; w < kClusterRows; ++w) sum = Op()(sum, shared[w][column]);
    totals[column] = sum;
  }
  cluster.sync();
  if (cluster.block_rank() == 0 && column < kClusterColumns) {
    float part[kCluster];
#pragma unroll
    for (int b = 0; b < kCluster; ++b) part[b] = cluster.map_shared_rank(totals, b)[column];
    float sum = part[0];
#pragma unroll
    for (int b = 1; b < kCluster; ++b) sum = Op()(sum, part[b]);
    const float result = sum * scale;
    Out& out = y[static_cast<std::int64_t>(blockIdx.x) * kClusterColumns + column];
    out = narrow<Out>(accumulate ? wide(out) + result : result);
  }
  cluster.sync();  // what the first one reads stays until it has
}
#endif

template <class Op, class T, class Out>
bool has_clusters() {
  if constexpr (sizeof(T) == 2) {
    cudaFuncAttributes attributes{};
    TRI_CUDA(cudaFuncGetAttributes(&attributes, cluster_kernel<Op, T, Out>));
    return attributes.ptxVersion >= 90;
  }
  return false;
}

// 32 outputs to a block, whose warps share out the chunks.
template <class Op, class Out>
__global__ void join_kernel(const float* partials, std::int64_t outputs, std::int64_t chunks, float scale,
                            bool accumulate, Out* y) {
  __shared__ float shared[kWarps][32];
  const std::int64_t o = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float total = Op::kNeutral;
  if (o < outputs) {
    constexpr int kTogether = 8;
    std::int64_t c = threadIdx.y;
    for (; c + kWarps * (kTogether - 1) < chunks; c += kWarps * kTogether) {
      float part[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) part[k] = partials[(c + kWarps * k) * outputs + o];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) total = Op()(total, part[k]);
    }
    for (; c < chunks; c += kWarps) total = Op()(total, partials[c * outputs + o]);
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || o >= outputs) return;
  for (int w = 1; w < kWarps; ++w) total = Op()(total, shared[w][threadIdx.x]);
  const float result = total * scale;
  y[o] = narrow<Out>(accumulate ? wide(y[o]) + result : result);
}

template <class Op>
std::shared_ptr<device::Kernel> prepare(const ir::KernelSpec& spec) {
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) {
    return dispatch_native(spec.outputs[0].dtype, [&]<class Out>(Out) -> std::shared_ptr<device::Kernel> {
      return make_kernel([plan = Plan(spec), plain = Groups(Plan(spec).groups.plain),
                          marked = Groups(Plan(spec).groups.marked),
                          clusters = has_clusters<Op, T, Out>()](const device::Launch& launch) {
        if (plan.outputs() == 0) return;
        const cudaStream_t stream = stream_of(launch);
        auto* partials = static_cast<float*>(launch.workspace);
        const std::int64_t inner = plan.groups.inner;
        if (plan.groups.inner_marked) {
          inner_kernel<Op, T><<<dim3(blocks(plan.outer), blocks(plan.chunks)), 256, 0, stream>>>(
              launch.in<T>(0), plain, marked, inner, plan.depth, partials);
        } else if (clusters && plan.outer == 1 && marked.count == 1 && inner % kClusterColumns == 0 &&
                   inner < kClusterWidth && plan.depth >= kClusterDepth && aligned16(launch.inputs[0])) {
          if constexpr (sizeof(T) == 2)
            cluster_kernel<Op, T, Out><<<dim3(blocks(inner / kClusterColumns), kCluster),
                                         dim3(kClusterColumns / kWidest<T>, kClusterRows), 0, stream>>>(
                launch.in<T>(0), marked.stride[0], plan.depth, plan.scale, plan.accumulate, launch.out<Out>(0));
          device::cuda::launched("reduce");
          return;
        } else {
          constexpr int kPack = kWidest<T>;
          const auto run = [&](auto kernel, int width) {
            const dim3 grid(blocks(pieces(inner, 32 * width)), blocks(plan.chunks), blocks(plan.outer));
            kernel<<<grid, dim3(32, kWarps), 0, stream>>>(launch.in<T>(0), plain, marked, inner, plan.depth,
                                                          plan.chunk_rows, partials);
          };
          const bool fits = inner % kPack == 0 && aligned16(launch.inputs[0]);
          fits ? run(rows_kernel<Op, kPack, T>, kPack) : run(rows_kernel<Op, 1, T>, 1);
        }
        join_kernel<Op, Out><<<blocks(pieces(plan.outputs(), 32)), dim3(32, kWarps), 0, stream>>>(
            partials, plan.outputs(), plan.chunks, plan.scale, plan.accumulate, launch.out<Out>(0));
        device::cuda::launched("reduce");
      });
    });
  });
}

template <class T>
__global__ void broadcast_kernel(const T* x, T* y, Groups plain, std::int64_t inner, bool inner_marked,
                                 std::int64_t n) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= n) return;
  std::int64_t source = inner_marked ? 0 : at % inner;
  std::int64_t stride = inner_marked ? 1 : inner;
#pragma unroll
  for (int i = kMaxGroups - 1; i >= 0; --i)
    if (i < plain.count) {
      source += at / plain.stride[i] % plain.extent[i] * stride;
      stride *= plain.extent[i];
    }
  y[at] = x[source];
}

template <class T>
std::shared_ptr<device::Kernel> broadcast(const ir::KernelSpec& spec) {
  const DimGroups groups(spec.outputs[0].shape, spec.attributes.integers("dims"));
  // Rows that are copied whole are copied 16 bytes at a time.
  constexpr std::int64_t kUnit = 16 / sizeof(T);
  Groups units(groups.plain);
  for (int i = 0; i < units.count; ++i) units.stride[i] /= kUnit;
  const bool whole = !groups.inner_marked && groups.inner % kUnit == 0;
  return make_kernel([plain = Groups(groups.plain), units, whole, inner = groups.inner, marked = groups.inner_marked,
                      n = spec.outputs[0].elements()](const device::Launch& launch) {
    if (n == 0) return;
    if (whole && aligned16(launch.inputs[0]) && aligned16(launch.outputs[0]))
      broadcast_kernel<uint4><<<blocks(pieces(n / kUnit, 256)), 256, 0, stream_of(launch)>>>(
          launch.in<uint4>(0), launch.out<uint4>(0), units, inner / kUnit, false, n / kUnit);
    else
      broadcast_kernel<T><<<blocks(pieces(n, 256)), 256, 0, stream_of(launch)>>>(launch.in<T>(0), launch.out<T>(0),
                                                                                 plain, inner, marked, n);
    device::cuda::launched("broadcast");
  });
}

}  // namespace

std::size_t reduce_workspace_cuda(const ir::KernelSpec& spec) { return Plan(spec).workspace(); }

std::shared_ptr<device::Kernel> prepare_reduce_cuda(const ir::KernelSpec& spec) {
  return spec.attributes.text("kind") == "max" ? prepare<Largest>(spec) : prepare<Add>(spec);
}

std::shared_ptr<device::Kernel> prepare_broadcast_cuda(const ir::KernelSpec& spec) {
  switch (size_of(spec.outputs[0].dtype)) {
    case 1: return broadcast<std::uint8_t>(spec);
    case 2: return broadcast<std::uint16_t>(spec);
    case 4: return broadcast<std::uint32_t>(spec);
    default: return broadcast<std::uint64_t>(spec);
  }
}

}  // namespace trireme::ops
