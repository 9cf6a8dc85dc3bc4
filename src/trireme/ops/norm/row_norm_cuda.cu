#include "trireme/ops/cuda/common.h"
#include "trireme/ops/norm/cuda_kernels.h"

// layer_norm and rms_norm. A warp takes a row, or a block where rows are long; it is read from memory once and stays in
// registers, unless it is too long for them.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMaxThreads = 512;
constexpr int kMaxPacks = 8;

// Columns of a thread: E packs of N, each as far from the next as all threads of the row are wide.
struct RowShape {
  std::int64_t rows = 0, width = 0;
  int threads = 32;  // to a row
  int together = 1;  // rows of a block at once
  int packs = 1;     // per thread: one of those that with_shape knows, up to kMaxPacks
  int pack = 1;

  RowShape(std::int64_t row_count, std::int64_t row_width, int widest) : rows(row_count), width(row_width) {
    pack = width % widest == 0 ? widest : 1;
    const std::int64_t units = std::max<std::int64_t>(1, width / pack);
    if (units <= 32 * 4 && pack > 1) {
      together = 4;
      packs = static_cast<int>(pieces(units, 32));
      return;
    }
    threads = static_cast<int>(std::min<std::int64_t>(kMaxThreads, pieces(units, 32) * 32));
    while (static_cast<std::int64_t>(threads) * packs < units) packs *= 2;
  }
  dim3 block() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together)); }
};

// N neighbouring floats, 16 bytes at a time where they are so many.
template <int N>
struct Floats {
  float v[N];
  __device__ __forceinline__ explicit Floats(const float* p) {
    if constexpr (N % 4 == 0) {
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        const Pack<float, 4> four = load<4>(p + k);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[k + j] = four.v[j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = p[j];
    }
  }
};

template <class T>
struct Forward {
  const T* x;
  const T* residual;
  const float* weight;
  const float* bias;
  T* y;
  float* mean;
  float* rstd;
  T* sum;
  std::int64_t rows, width;
  float eps;
};

template <bool Centered, int N, int E, class T>
__global__ void __launch_bounds__(kMaxThreads) forward_kernel(Forward<T> f) {
  __shared__ float shared[kMaxThreads / 32];
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (r >= f.rows) return;
  const std::int64_t row = r * f.width;
  float x[E][N];
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
    if (column < f.width) {
      const Pack<T, N> a = load<N>(f.x + row + column);
#pragma unroll
      for (int j = 0; j < N; ++j) x[e][j] = wide(a.v[j]);
      if (f.residual != nullptr) {
        const Pack<T, N> b = load<N>(f.residual + row + column);
        Pack<T, N> sum;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          sum.v[j] = narrow<T>(x[e][j] + wide(b.v[j]));
          x[e][j] = wide(sum.v[j]);
        }
        store<N>(f.sum + row + column, sum);
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) x[e][j] = 0;
    }
  }
  const float inverse = 1.0F / static_cast<float>(f.width);
  float mean = 0;
  if constexpr (Centered) {
    float total = 0;
#pragma unroll
    for (int e = 0; e < E; ++e)
#pragma unroll
      for (int j = 0; j < N; ++j) total += x[e][j];
    mean = block_reduce<Add>(total, shared) * inverse;
  }
  float squares = 0;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
    if (column < f.width)
#pragma unroll
      for (int j = 0; j < N; ++j) squares += (x[e][j] - mean) * (x[e][j] - mean);
  }
  squares = block_reduce<Add>(squares, shared) * inverse;
  const float rstd = 1.0F / sqrtf(squares + f.eps);
  if (threadIdx.x == 0) {
    if constexpr (Centered) f.mean[r] = mean;
    f.rstd[r] = rstd;
  }
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
    if (column >= f.width) continue;
    const Floats<N> weight(f.weight + column);
    Pack<T, N> y;
    if (f.bias != nullptr) {
      const Floats<N> bias(f.bias + column);
#pragma unroll
      for (int j = 0; j < N; ++j) y.v[j] = narrow<T>(fmaf((x[e][j] - mean) * rstd, weight.v[j], bias.v[j]));
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) y.v[j] = narrow<T>((x[e][j] - mean) * rstd * weight.v[j]);
    }
    store<N>(f.y + row + column, y);
  }
}

// Rows of any width, read three times.
template <bool Centered, class T>
__global__ void long_forward_kernel(Forward<T> f) {
  __shared__ float shared[kMaxThreads / 32];
  const std::int64_t row = blockIdx.x * f.width;
  const T* x = f.residual != nullptr ? f.sum : f.x;
  if (f.residual != nullptr)
    for (std::int64_t i = threadIdx.x; i < f.width; i += blockDim.x)
      f.sum[row + i] = narrow<T>(wide(f.x[row + i]) + wide(f.residual[row + i]));
  const float inverse = 1.0F / static_cast<float>(f.width);
  float mean = 0;
  if constexpr (Centered) {
    float total = 0;
    for (std::int64_t i = threadIdx.x; i < f.width; i += blockDim.x) total += wide(x[row + i]);
    mean = block_reduce<Add>(total, shared) * inverse;
  }
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < f.width; i += blockDim.x) {
    const float v = wide(x[row + i]) - mean;
    squares += v * v;
  }
  const float rstd = 1.0F / sqrtf(block_reduce<Add>(squares, shared) * inverse + f.eps);
  if (threadIdx.x == 0) {
    if constexpr (Centered) f.mean[blockIdx.x] = mean;
    f.rstd[blockIdx.x] = rstd;
  }
  for (std::int64_t i = threadIdx.x; i < f.width; i += blockDim.x) {
    const float v = (wide(x[row + i]) - mean) * rstd * f.weight[i];
    f.y[row + i] = narrow<T>(f.bias != nullptr ? v + f.bias[i] : v);
  }
}

// Calls f with the constants (pack, packs per thread) of a shape.
template <int Widest, class F>
void with_shape(const RowShape& shape, F&& f) {
  const auto packs = [&]<int N>(std::integral_constant<int, N> n) {
    switch (shape.packs) {
      case 1: return f(n, std::integral_constant<int, 1>{});
      case 2: return f(n, std::integral_constant<int, 2>{});
      case 3: return f(n, std::integral_constant<int, 3>{});
      case 4: return f(n, std::integral_constant<int, 4>{});
      default: return f(n, std::integral_constant<int, 8>{});
    }
  };
  if (shape.pack == 1)
    packs(std::integral_constant<int, 1>{});
  else
    packs(std::integral_constant<int, Widest>{});
}

RowShape shape_of(const ir::KernelSpec& spec) {
  const std::int64_t width = spec.inputs[0].shape.back();
  const std::int64_t rows = width == 0 ? 0 : spec.inputs[0].elements() / width;
  return {rows, width, static_cast<int>(16 / size_of(spec.inputs[0].dtype))};
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_forward(const ir::KernelSpec& spec) {
  const RowShape shape = shape_of(spec);
  const auto eps = static_cast<float>(spec.attributes.real("eps"));
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([shape, eps](const device::Launch& launch) {
      if (shape.rows == 0) return;
      constexpr std::size_t residual = Centered ? 3 : 2;
      Forward<T> f{};
      f.x = launch.in<T>(0);
      f.weight = launch.in<float>(1);
      f.bias = Centered ? launch.in<float>(2) : nullptr;
      f.residual = launch.in<T>(residual);
      f.y = launch.out<T>(0);
      f.mean = Centered ? launch.out<float>(1) : nullptr;
      f.rstd = launch.out<float>(Centered ? 2 : 1);
      f.sum = f.residual != nullptr ? launch.out<T>(residual) : nullptr;
      f.rows = shape.rows;
      f.width = shape.width;
      f.eps = eps;
      if (shape.packs > kMaxPacks)
        long_forward_kernel<Centered, T><<<blocks(shape.rows), kMaxThreads, 0, stream_of(launch)>>>(f);
      else
        with_shape<kWidest<T>>(
            shape, [&]<int N, int E>(std::integral_constant<int, N>, std::integral_constant<int, E>) {
              forward_kernel<Centered, N, E, T>
                  <<<blocks(pieces(shape.rows, shape.together)), shape.block(), 0, stream_of(launch)>>>(f);
            });
      device::cuda::launched("norm");
    });
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_layer_norm_cuda(const ir::KernelSpec& s) { return prepare_forward<true>(s); }
std::shared_ptr<device::Kernel> prepare_rms_norm_cuda(const ir::KernelSpec& s) { return prepare_forward<false>(s); }
}  // namespace trireme::ops
