#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

// layer_norm, rms_norm and their gradients. A warp takes a row at a time, or a block where rows are long, and a thread
// the same columns of every row, so that a row is read from memory once and stays in registers, and so do the sums of
// the weights' gradients.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMostThreads = 512;

// Columns of a thread: E packs of N, each as far from the next as all threads of the row are wide.
struct RowShape {
  std::int64_t rows = 0, width = 0;
  int threads = 32;  // to a row
  int together = 1;  // rows of a block at once
  int packs = 1;     // per thread: one of those that with_shape knows
  int pack = 1;

  RowShape(std::int64_t row_count, std::int64_t row_width, int widest, bool by_warp)
      : rows(row_count), width(row_width) {
    pack = width % widest == 0 ? widest : 1;
    const std::int64_t units = std::max<std::int64_t>(1, width / pack);
    if (by_warp && units <= 32 * 4 && pack > 1) {
      together = 4;
      packs = static_cast<int>(pieces(units, 32));
      return;
    }
    threads = static_cast<int>(std::min<std::int64_t>(kMostThreads, pieces(units, 32) * 32));
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
__global__ void forward_kernel(Forward<T> f) {
  __shared__ float shared[kMostThreads / 32];
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

// Two sums over a block in one go. Whoever takes turns with two places for `shared` needs one barrier for each.
struct Two {
  float a, b;
};
__device__ __forceinline__ Two block_sums(Two x, Two* shared) {
  x = {warp_reduce<Add>(x.a), warp_reduce<Add>(x.b)};
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (unsigned w = 1; w < warps; ++w) x = {x.a + shared[w].a, x.b + shared[w].b};
  return x;
}

template <class T>
struct Backward {
  const T* s;
  const float* weight;
  const float* mean;
  const float* rstd;
  const T* dy;
  const T* dsum;
  T* dx;
  float* partials;  // [block][dweight, dbias][width]
  std::int64_t rows, width;
  int stride;  // of a block's partials: width or 2·width
};

// What a thread reads of a row. The next row's is on its way while this one's sums are taken.
template <int N, int E, class T>
struct RowOf {
  Pack<T, N> s[E], dy[E], more[E];
  float mean = 0, rstd = 0;

  template <bool Centered>
  __device__ __forceinline__ void fetch(const Backward<T>& b, std::int64_t r) {
    mean = Centered ? b.mean[r] : 0;
    rstd = b.rstd[r];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
      if (column >= b.width) continue;
      const std::int64_t at = r * b.width + column;
      s[e] = load<N>(b.s + at);
      dy[e] = load<N>(b.dy + at);
      if (b.dsum != nullptr) more[e] = load<N>(b.dsum + at);
    }
  }
};

template <bool Centered, int N, int E, class T>
__global__ void backward_kernel(Backward<T> b) {
  __shared__ Two shared[2][kMostThreads / 32];
  int turn = 0;
  float dweight[E][N] = {};
  float dbias[E][N] = {};
  const float inverse = 1.0F / static_cast<float>(b.width);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  RowOf<N, E, T> next;
  if (r < b.rows) next.template fetch<Centered>(b, r);
  for (; r < b.rows; r += step) {
    const RowOf<N, E, T> now = next;
    if (r + step < b.rows) next.template fetch<Centered>(b, r + step);
    const auto normal = [&](int e, int j) { return (wide(now.s[e].v[j]) - now.mean) * now.rstd; };
    float g[E][N];
    float sum_g = 0;
    float sum_gx = 0;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
      if (column >= b.width) continue;
      const Floats<N> weight(b.weight + column);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float d = wide(now.dy[e].v[j]);
        const float x = normal(e, j);
        g[e][j] = d * weight.v[j];
        dweight[e][j] += d * x;
        if constexpr (Centered) {
          dbias[e][j] += d;
          sum_g += g[e][j];
        }
        sum_gx += g[e][j] * x;
      }
    }
    const Two sums = block_sums({sum_g, sum_gx}, shared[turn]);
    turn = 1 - turn;
    sum_g = sums.a * inverse;
    sum_gx = sums.b * inverse;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
      if (column >= b.width) continue;
      Pack<T, N> dx;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float v = (g[e][j] - sum_g - normal(e, j) * sum_gx) * now.rstd;
        dx.v[j] = narrow<T>(b.dsum != nullptr ? v + wide(now.more[e].v[j]) : v);
      }
      store<N>(b.dx + r * b.width + column, dx);
    }
  }
  float* mine = b.partials + (static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y) * b.stride;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const std::int64_t column = (static_cast<std::int64_t>(e) * blockDim.x + threadIdx.x) * N;
    if (column >= b.width) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      mine[column + j] = dweight[e][j];
      if (b.stride > b.width) mine[b.width + column + j] = dbias[e][j];
    }
  }
}

// Sums of the columns of partials[count][stride]: 32 columns to a block, its warps share out the rows.
__global__ void join_kernel(const float* partials, int count, int stride, std::int64_t width, float* dweight,
                            float* dbias) {
  __shared__ float shared[32][33];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (column < stride)
    for (int r = static_cast<int>(threadIdx.y); r < count; r += 32)
      sum += partials[static_cast<std::int64_t>(r) * stride + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= stride) return;
  for (int w = 1; w < 32; ++w) sum += shared[w][threadIdx.x];
  if (column < width)
    dweight[column] = sum;
  else
    dbias[column - width] = sum;
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

// The gradient's sums of columns want all the registers of a thread for few columns: there a block takes a row.
RowShape shape_of(const ir::KernelSpec& spec, bool by_warp) {
  const std::int64_t width = spec.inputs[0].shape.back();
  const std::int64_t rows = width == 0 ? 0 : spec.inputs[0].elements() / width;
  return {rows, width, static_cast<int>(16 / size_of(spec.inputs[0].dtype)), by_warp};
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_forward(const ir::KernelSpec& spec) {
  const RowShape shape = shape_of(spec, true);
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
      with_shape<kWidest<T>>(shape, [&]<int N, int E>(std::integral_constant<int, N>, std::integral_constant<int, E>) {
        forward_kernel<Centered, N, E, T>
            <<<blocks(pieces(shape.rows, shape.together)), shape.block(), 0, stream_of(launch)>>>(f);
      });
      device::cuda::launched("norm");
    });
  });
}

// As many blocks as a GPU has room for at once; more rows than that share one.
std::int64_t backward_blocks(const RowShape& shape) {
  constexpr std::int64_t kProcessors = 132, kThreads = 630;  // of which registers allow so many
  return std::clamp<std::int64_t>(pieces(shape.rows, shape.together), 1,
                                  kProcessors * std::max<std::int64_t>(1, kThreads / shape.threads));
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_backward(const ir::KernelSpec& spec) {
  const RowShape shape = shape_of(spec, false);
  const bool has_bias = Centered && spec.outputs.size() == 3;
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([shape, has_bias](const device::Launch& launch) {
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
      b.width = shape.width;
      b.stride = static_cast<int>(has_bias ? 2 * shape.width : shape.width);
      const std::int64_t grid = backward_blocks(shape);
      const auto count = static_cast<int>(grid * shape.together);
      with_shape<kWidest<T>>(shape, [&]<int N, int E>(std::integral_constant<int, N>, std::integral_constant<int, E>) {
        backward_kernel<Centered, N, E, T><<<blocks(grid), shape.block(), 0, stream_of(launch)>>>(b);
      });
      join_kernel<<<blocks(pieces(b.stride, 32)), dim3(32, 32), 0, stream_of(launch)>>>(
          b.partials, count, b.stride, shape.width, launch.out<float>(1), has_bias ? launch.out<float>(2) : nullptr);
      device::cuda::launched("norm_grad");
    });
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_layer_norm_cuda(const ir::KernelSpec& s) { return prepare_forward<true>(s); }
std::shared_ptr<device::Kernel> prepare_rms_norm_cuda(const ir::KernelSpec& s) { return prepare_forward<false>(s); }
std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<true>(s);
}
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<false>(s);
}

std::size_t row_norm_grad_workspace_cuda(const ir::KernelSpec& spec) {
  const RowShape shape = shape_of(spec, false);
  return static_cast<std::size_t>(backward_blocks(shape) * shape.together * shape.width) * (spec.outputs.size() - 1) *
         sizeof(float);
}

bool supports_row_norm_cuda(const ir::KernelSpec& spec) { return shape_of(spec, false).packs <= 8; }

}  // namespace trireme::ops
