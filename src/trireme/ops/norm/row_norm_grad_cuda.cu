#include <array>
#include <vector>

#include "trireme/ops/cuda/common.h"
#include "trireme/ops/norm/cuda_kernels.h"
#include "trireme/ops/norm/row_norm_grad_rows.cuh"
#include "trireme/ops/shape/cuda_kernels.h"

// The gradients of layer_norm and rms_norm. A thread takes the same columns of every row and keeps the sums of the
// weights' gradients in registers. Most rows of 16-bit numbers go through row_norm_grad_rows.cuh; of the others one or
// a few warps take one at a time, and a thread has its part of the next row fetched to shared memory while it works on
// this one.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMaxVectors = 5;      // of a thread
constexpr int kMaxThreads = 384;    // to a row
constexpr int kBlockThreads = 128;  // where rows are short, several share a block
// SMs of an H100 or H200. A constant: it decides how partial sums are taken, and bits must not depend on the GPU.
constexpr int kSMs = 132;
// Of an SM: with five vectors a thread wants up to 168 registers, else 128 are enough.
constexpr int threads_at_once(int vectors) { return vectors == kMaxVectors ? 384 : 512; }
constexpr int kOperands = 3;  // that a row is read of: s, dy, dsum
constexpr int kLongThreads = 256;
constexpr std::int64_t kLongChunks = 64;

// A thread has `vectors` times 16 bytes of a row, each as far from the next as all threads of the row are wide.
struct GradShape {
  std::int64_t rows = 0, width = 0;
  int vectors = 0;         // 0: too wide for registers, or not a multiple of 16 bytes
  int threads = 0;         // to a row
  int rows_per_block = 1;  // rows of a block at once
  bool whole = false;      // no thread is idle
  bool pairs = false;      // a block takes two rows at once: row_norm_grad_rows.cuh
  bool has_bias = false;
  bool rounds = false;  // the sums of dx, to its type
  bool total = false;   // the sums of dx are wanted; but where `pairs`, they are taken by a pass of their own
  std::int64_t grid = 1;

  // `centered`: of layer_norm.
  GradShape(const ir::KernelSpec& spec, bool centered) : width(spec.inputs[0].shape.back()) {
    rows = width == 0 ? 0 : spec.inputs[0].elements() / width;
    has_bias = centered && spec.attributes.boolean("has_bias");
    total = centered && spec.attributes.text("total") != "none";
    rounds = total && spec.outputs.back().dtype != DType::f32;
    if (size_of(spec.inputs[0].dtype) == 2) threads = centered ? row_threads<true>(width) : row_threads<false>(width);
    if (threads > 0) {
      pairs = true;
      vectors = 1;
      whole = std::int64_t{8} * threads == width;
      grid = std::clamp<std::int64_t>(pieces(rows, kRowsAtOnce), 1, kSMs * row_blocks(threads, centered, total));
      return;
    }
    const auto vector_width = static_cast<std::int64_t>(16 / size_of(spec.inputs[0].dtype));
    const std::int64_t units = width / vector_width;
    // The vectors of all threads, some of them idle; more than one to a thread saves sums over threads.
    std::int64_t least = 0;
    for (int e = kMaxVectors; e >= 1 && width > 0 && width % vector_width == 0; --e) {
      const std::int64_t wanted = pieces(units, 32 * e) * 32;
      const std::int64_t cost = wanted * e * (20 + 3 * (kMaxVectors - e));
      if (wanted > kMaxThreads || (vectors != 0 && cost >= least)) continue;
      vectors = e;
      threads = static_cast<int>(wanted);
      least = cost;
    }
    if (vectors == 0) {
      grid = std::clamp<std::int64_t>(rows / 64, 1, kLongChunks);
      return;
    }
    whole = static_cast<std::int64_t>(threads) * vectors == units;
    rows_per_block = std::max(1, kBlockThreads / threads);
    grid = std::clamp<std::int64_t>(pieces(rows, rows_per_block), 1,
                                    kSMs * std::max(1, threads_at_once(vectors) / (threads * rows_per_block)));
  }
  // That are taken over the rows by the same kernel.
  int sums() const { return 1 + (has_bias ? 1 : 0) + (total && pairs ? 1 : 0); }
  dim3 block() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows_per_block)); }
  // For two rows of each; at the end it holds the sums of columns, which are smaller.
  std::size_t shared() const {
    return static_cast<std::size_t>(threads * rows_per_block * vectors) * 2 * kOperands * 16;
  }
};

struct Two {
  float a, b;
};

// Two sums over the threads of a row; all threads of the block come here, whether they have a row or not. A caller that
// takes turns with two places for `shared` needs one barrier for each.
__device__ __forceinline__ Two row_sums(Two x, Two* shared) {
  x = {warp_reduce<Add>(x.a), warp_reduce<Add>(x.b)};
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (unsigned w = 1; w < warps; ++w) x = {x.a + shared[w].a, x.b + shared[w].b};
  return x;
}

template <bool Centered, bool Whole, int E, class T>
__global__ void __launch_bounds__(threads_at_once(E)) backward_kernel(Backward<T> b) {
  constexpr int N = kWidest<T>;
  extern __shared__ __align__(16) float space[];
  __shared__ Two shared[kBlockThreads / 32][2][kMaxThreads / 32];
  const unsigned threads = blockDim.x * blockDim.y, own = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned base = shared_address(space) + own * 16;
  const int first = static_cast<int>(threadIdx.x) * N, apart = static_cast<int>(blockDim.x) * N;
  const auto inside = [&](int e) { return Whole || first + e * apart < b.width; };
  const auto place = [&](int stage, int operand, int e) {
    return base + static_cast<unsigned>((stage * kOperands + operand) * E + e) * threads * 16;
  };
  const auto fetch = [&](int stage, std::int64_t r) {
    const std::int64_t at = r * b.width + first;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!inside(e)) continue;
      const auto one = [&](int operand, const T* from) { copy_async(place(stage, operand, e), from + at + e * apart); };
      one(0, b.s);
      one(1, b.dy);
      if (b.dsum != nullptr) one(2, b.dsum);
    }
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  float dweight[E][N] = {};
  float dbias[E][N] = {};
  // Where there is room for them, the weights stay in registers; else they are read anew for each row.
  constexpr bool kHolds = !Centered && E < kMaxVectors;
  Floats<N> held[kHolds ? E : 1];
  if constexpr (kHolds) {
#pragma unroll
    for (int e = 0; e < E; ++e)
      if (inside(e)) held[e] = Floats<N>(b.weight + first + e * apart);
  }
  const auto weights = [&](int e) {
    if constexpr (kHolds)
      return held[e];
    else
      return Floats<N>(b.weight + first + e * apart);
  };
  const float inverse = 1.0F / static_cast<float>(b.width);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const std::int64_t end = (b.rows + blockDim.y - 1) / blockDim.y * blockDim.y;  // the same for all of the block
  std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  float next_mean = 0, next_rstd = 0;
  const auto fetch_statistics = [&](std::int64_t row) {
    next_mean = Centered ? b.mean[row] : 0;
    next_rstd = b.rstd[row];
  };
  if (r < b.rows) {
    fetch(0, r);
    fetch_statistics(r);
  }
  commit();
  for (int stage = 0; r < end; r += step, stage = 1 - stage) {
    const bool has_row = r < b.rows;
    const float rstd = next_rstd, shift = -next_mean * next_rstd;
    if (r + step < b.rows) {
      fetch(1 - stage, r + step);
      fetch_statistics(r + step);
    }
    commit();
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    Two sums{0, 0};
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!has_row || !inside(e)) continue;
      const Packed<T> s(place(stage, 0, e)), dy(place(stage, 1, e));
      const Floats<N> weight = weights(e);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float d = dy[j];
        const float x = fmaf(s[j], rstd, shift);
        const float g = d * weight.v[j];
        dweight[e][j] = fmaf(d, x, dweight[e][j]);
        if constexpr (Centered) {
          dbias[e][j] += d;
          sums.a += g;
        }
        sums.b = fmaf(g, x, sums.b);
      }
    }
    sums = row_sums(sums, shared[threadIdx.y][stage]);
    // dx = rstd · (g − Σg/n − x·Σgx/n)
    const float p = -sums.b * inverse * rstd, q = -sums.a * inverse * rstd;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!has_row || !inside(e)) continue;
      const Packed<T> s(place(stage, 0, e)), dy(place(stage, 1, e));
      const Floats<N> weight = weights(e);
      float v[N];
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf(dy[j] * weight.v[j], rstd, fmaf(fmaf(s[j], rstd, shift), p, q));
      if (b.dsum != nullptr) {
        const Packed<T> more(place(stage, 2, e));
#pragma unroll
        for (int j = 0; j < N; ++j) v[j] += more[j];
      }
      Pack<T, N> dx;
#pragma unroll
      for (int j = 0; j < N; ++j) dx.v[j] = narrow<T>(v[j]);
      store<N>(b.dx + r * b.width + first + e * apart, dx);
    }
  }
  wait_copies();
  __syncthreads();
  float* const mine = space + static_cast<int>(threadIdx.y) * b.stride;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    if (!inside(e)) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      mine[first + e * apart + j] = dweight[e][j];
      if (b.has_bias) mine[b.width + first + e * apart + j] = dbias[e][j];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(own); i < b.stride; i += static_cast<int>(threads)) {
    float sum = space[i];
    for (int y = 1; y < static_cast<int>(blockDim.y); ++y) sum += space[y * b.stride + i];
    b.partials[static_cast<std::int64_t>(blockIdx.x) * b.stride + i] = sum;
  }
}

// Rows too wide for registers: the columns' sums first, since dx may be in place of what they read.
template <bool Centered, class T>
__global__ void long_columns_kernel(Backward<T> b) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLongThreads + threadIdx.x;
  if (column >= b.width) return;
  const std::int64_t chunks = gridDim.y;
  float dweight = 0, dbias = 0;
  for (std::int64_t r = b.rows * blockIdx.y / chunks; r < b.rows * (blockIdx.y + 1) / chunks; ++r) {
    const float d = wide(b.dy[r * b.width + column]);
    dweight += d * (wide(b.s[r * b.width + column]) - (Centered ? b.mean[r] : 0.0F)) * b.rstd[r];
    dbias += d;
  }
  float* const mine = b.partials + static_cast<std::int64_t>(blockIdx.y) * b.stride;
  mine[column] = dweight;
  if (b.has_bias) mine[b.width + column] = dbias;
}

template <bool Centered, class T>
__global__ void long_rows_kernel(Backward<T> b) {
  __shared__ float shared[32];
  const std::int64_t r = blockIdx.x, row = r * b.width;
  const float mean = Centered ? b.mean[r] : 0, rstd = b.rstd[r], inverse = 1.0F / static_cast<float>(b.width);
  float sum_g = 0, sum_gx = 0;
  for (std::int64_t i = threadIdx.x; i < b.width; i += kLongThreads) {
    const float g = wide(b.dy[row + i]) * b.weight[i];
    sum_g += g;
    sum_gx += g * (wide(b.s[row + i]) - mean) * rstd;
  }
  sum_g = Centered ? block_reduce<Add>(sum_g, shared) * inverse : 0.0F;
  sum_gx = block_reduce<Add>(sum_gx, shared) * inverse;
  for (std::int64_t i = threadIdx.x; i < b.width; i += kLongThreads) {
    const float x = (wide(b.s[row + i]) - mean) * rstd;
    const float v = (wide(b.dy[row + i]) * b.weight[i] - sum_g - x * sum_gx) * rstd;
    b.dx[row + i] = narrow<T>(b.dsum != nullptr ? v + wide(b.dsum[row + i]) : v);
  }
}

template <class T>
struct Sums {
  float* to[3];
  T* rounded;  // in place of the last, or null
};

// Sums of the columns of partials[count][stride]: 32 columns to a block, its warps share out the rows.
template <class T>
__global__ void join_kernel(const float* partials, int count, int stride, int width, Sums<T> sums) {
  __shared__ float shared[32][33];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (column < stride) {
#pragma unroll 8
    for (int r = static_cast<int>(threadIdx.y); r < count; r += 32)
      sum += partials[static_cast<std::int64_t>(r) * stride + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= stride) return;
  for (int w = 1; w < 32; ++w) sum += shared[w][threadIdx.x];
  float* const to = column < width ? sums.to[0] : column < 2 * width ? sums.to[1] : sums.to[2];
  if (sums.rounded != nullptr && column >= stride - width)
    sums.rounded[column % width] = narrow<T>(sum);
  else
    to[column % width] = sum;
}

template <bool Centered, class T>
void run_long(const GradShape& shape, const Backward<T>& b, cudaStream_t stream) {
  long_columns_kernel<Centered, T>
      <<<dim3(blocks(pieces(shape.width, kLongThreads)), blocks(shape.grid)), kLongThreads, 0, stream>>>(b);
  if (shape.rows > 0) long_rows_kernel<Centered, T><<<blocks(shape.rows), kLongThreads, 0, stream>>>(b);
}

// Calls f with the kernel of a shape that has vectors.
template <bool Centered, class T, class F>
void with_kernel(const GradShape& shape, F&& f) {
  const auto vectors = [&]<bool Whole>(std::bool_constant<Whole>) {
    switch (shape.vectors) {
      case 1: return f(backward_kernel<Centered, Whole, 1, T>);
      case 2: return f(backward_kernel<Centered, Whole, 2, T>);
      case 3: return f(backward_kernel<Centered, Whole, 3, T>);
      case 4: return f(backward_kernel<Centered, Whole, 4, T>);
      default: return f(backward_kernel<Centered, Whole, 5, T>);
    }
  };
  shape.whole ? vectors(std::true_type{}) : vectors(std::false_type{});
}

// Launches the kernel of a shape that has vectors.
template <bool Centered, class T>
void run_short(const GradShape& shape, const Backward<T>& b, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2)
    if (shape.pairs) {
      const auto launch = [&](auto kernel) {
        kernel<<<blocks(shape.grid), static_cast<unsigned>(shape.threads), 0, stream>>>(b);
      };
      if constexpr (Centered)
        if (shape.total) return with_rows_kernel<true, true, T>(shape.threads, shape.whole, launch);
      return with_rows_kernel<Centered, false, T>(shape.threads, shape.whole, launch);
    }
  with_kernel<Centered, T>(
      shape, [&](auto kernel) { kernel<<<blocks(shape.grid), shape.block(), shape.shared(), stream>>>(b); });
}

// The sums of dx by a pass of their own.
struct Total {
  std::vector<std::int64_t> dims;
  ir::Attributes attributes;

  explicit Total(const ir::KernelSpec& spec) {
    for (int i = 0; i + 1 < spec.inputs[0].shape.rank(); ++i) dims.push_back(i);
    attributes = {{"kind", std::string("sum")}, {"dims", dims}, {"out", spec.attributes.text("total")}};
  }
  ir::KernelSpec like(const ir::KernelSpec& spec) const {
    return {spec.outputs.first(1), spec.outputs.last(1), attributes, spec.threads};
  }
};

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_backward(const ir::KernelSpec& spec) {
  const GradShape shape(spec, Centered);
  std::shared_ptr<device::Kernel> total;
  if (shape.total && !shape.pairs) total = prepare_reduce_cuda(Total(spec).like(spec));
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    if (shape.vectors > 0 && !shape.pairs)
      with_kernel<Centered, T>(shape, [&](auto kernel) {
        TRI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kMaxThreads * kMaxVectors * 2 * kOperands * 16)));
      });
    return make_kernel([shape, total](const device::Launch& launch) {
      if (shape.width == 0) return;
      Backward<T> b{};
      b.s = launch.in<T>(0);
      b.weight = launch.in<float>(1);
      b.mean = Centered ? launch.in<float>(2) : nullptr;
      b.rstd = launch.in<float>(Centered ? 3 : 2);
      b.dy = launch.in<T>(Centered ? 4 : 3);
      b.dsum = launch.in<T>(Centered ? 5 : 4);
      b.dx = launch.out<T>(0);
      b.partials = static_cast<float*>(launch.workspace);
      b.rows = shape.rows;
      b.width = static_cast<int>(shape.width);
      b.stride = shape.sums() * b.width;
      b.has_bias = shape.has_bias;
      if (shape.vectors == 0)
        run_long<Centered, T>(shape, b, stream_of(launch));
      else
        run_short<Centered, T>(shape, b, stream_of(launch));
      Sums<T> sums{};
      for (int i = 0; i < shape.sums(); ++i) sums.to[i] = launch.out<float>(static_cast<std::size_t>(i) + 1);
      if (shape.rounds && shape.pairs) sums.rounded = launch.out<T>(launch.outputs.size() - 1);
      join_kernel<<<blocks(pieces(b.stride, 32)), dim3(32, 32), 0, stream_of(launch)>>>(
          b.partials, static_cast<int>(shape.grid), b.stride, b.width, sums);
      device::cuda::launched("norm_grad");
      if (total)
        total->launch({std::array<const void*, 1>{launch.outputs[0]}, launch.outputs.last(1), launch.workspace,
                       launch.pool, launch.native_stream});
    });
  });
}

std::size_t workspace(const ir::KernelSpec& spec, bool centered) {
  const GradShape shape(spec, centered);
  const std::size_t partials = static_cast<std::size_t>(shape.grid * shape.width * shape.sums()) * sizeof(float);
  if (!shape.total || shape.pairs) return partials;
  return std::max(partials, reduce_workspace_cuda(Total(spec).like(spec)));
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<true>(s);
}
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<false>(s);
}

std::size_t layer_norm_grad_workspace_cuda(const ir::KernelSpec& spec) { return workspace(spec, true); }
std::size_t rms_norm_grad_workspace_cuda(const ir::KernelSpec& spec) { return workspace(spec, false); }

}  // namespace trireme::ops
