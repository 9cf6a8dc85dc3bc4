#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

// The gradients of layer_norm and rms_norm. One or a few warps take a row at a time, and a thread the same columns of
// every row, so that a row is read from memory once and stays in registers, and so do the sums of the weights'
// gradients.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kMostPacks = 4;       // of a thread
constexpr int kMostThreads = 384;   // to a row
constexpr int kBlockThreads = 128;  // where rows are short, several share a block
constexpr int kProcessors = 132;
// Of a processor, as many as registers allow: 168 to a thread of four packs, 128 to others.
constexpr int warps_at_once(int packs) { return packs == kMostPacks ? 12 : 16; }
constexpr int kLongThreads = 256;
constexpr std::int64_t kLongChunks = 64;

// A thread has E packs of N columns, each as far from the next as all threads of the row are wide.
struct GradShape {
  std::int64_t rows = 0, width = 0;
  int pack = 1;
  int packs = 0;     // 0: too wide for registers
  int threads = 0;   // to a row
  int together = 1;  // rows of a block at once
  std::int64_t grid = 1;

  explicit GradShape(const ir::KernelSpec& spec) : width(spec.inputs[0].shape.back()) {
    rows = width == 0 ? 0 : spec.inputs[0].elements() / width;
    const auto widest = static_cast<int>(16 / size_of(spec.inputs[0].dtype));
    pack = width % widest == 0 ? widest : 1;
    const std::int64_t units = std::max<std::int64_t>(1, width / pack);
    // The packs of all threads, some of them idle; more than one to a thread saves sums over threads.
    std::int64_t least = 0;
    for (int e = kMostPacks; e >= 1; --e) {
      const std::int64_t wanted = pieces(units, 32 * e) * 32;
      const std::int64_t cost = wanted * e * (20 + 3 * (kMostPacks - e));
      if (wanted > kMostThreads || (packs != 0 && cost >= least)) continue;
      packs = e;
      threads = static_cast<int>(wanted);
      least = cost;
    }
    if (packs == 0) {
      grid = std::clamp<std::int64_t>(rows / 64, 1, kLongChunks);
      return;
    }
    together = std::max(1, kBlockThreads / threads);
    const std::int64_t at_once = std::max(1, warps_at_once(packs) * 32 / (threads * together));
    grid = std::clamp<std::int64_t>(pieces(rows, together), 1, kProcessors * at_once);
  }
  dim3 block() const { return dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together)); }
  std::size_t shared() const {
    return together == 1 ? 0 : static_cast<std::size_t>(together * 2 * width) * sizeof(float);
  }
};

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

// N neighbours as they lie in memory. (An array of 16-bit values takes a register for each.)
template <class T, int N>
struct Row {
  static constexpr bool kPairs = sizeof(T) == 2 && N % 2 == 0;
  using Word = std::conditional_t<kPairs, unsigned, T>;
  static constexpr int kWords = kPairs ? N / 2 : N;
  Pack<Word, kWords> words;

  __device__ __forceinline__ void fetch(const T* p) { words = load<kWords>(reinterpret_cast<const Word*>(p)); }
  __device__ __forceinline__ float operator[](int j) const {
    if constexpr (!kPairs)
      return wide(words.v[j]);
    else if constexpr (std::is_same_v<T, Bf16>)
      return __uint_as_float(j % 2 == 0 ? words.v[j / 2] << 16U : words.v[j / 2] & 0xffff0000U);
    else
      return __half2float(__ushort_as_half(static_cast<unsigned short>(words.v[j / 2] >> (j % 2 == 0 ? 0U : 16U))));
  }
  // What the compiler knows of the values ends here: it would rather keep them widened, in twice the registers, than
  // widen them again.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (kPairs) {
#pragma unroll
      for (int k = 0; k < kWords; ++k) asm volatile("" : "+r"(words.v[k]));
    }
  }
};

struct Two {
  float a, b;
};

// Two sums over the threads of a row. Whoever takes turns with two places for `shared` needs one barrier for each.
__device__ __forceinline__ Two row_sums(Two x, Two* shared) {
  x = {warp_reduce<Add>(x.a), warp_reduce<Add>(x.b)};
  const unsigned warps = blockDim.x / 32;
  if (warps == 1) return x;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  // Of the threads of this row alone: others may have more rows, or fewer.
  asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
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
  std::int64_t rows;
  int width;
  int stride;  // of a block's partials: width or 2·width
};

template <bool Centered, int N, int E, class T>
__global__ void __launch_bounds__(warps_at_once(E) * 32) backward_kernel(Backward<T> b) {
  extern __shared__ float columns[];  // [row of the block][dweight, dbias][width]
  __shared__ Two shared[kBlockThreads / 32][2][kMostThreads / 32];
  int turn = 0;
  float dweight[E][N] = {};
  float dbias[E][N] = {};
  const float inverse = 1.0F / static_cast<float>(b.width);
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < b.rows;
       r += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t row = r * b.width;
    const float mean = Centered ? b.mean[r] : 0;
    const float rstd = b.rstd[r];
    Row<T, N> s[E], dy[E], more[E];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int column = first + e * step;
      if (column >= b.width) continue;
      s[e].fetch(b.s + row + column);
      dy[e].fetch(b.dy + row + column);
      if (b.dsum != nullptr) more[e].fetch(b.dsum + row + column);
    }
    Two sums{0, 0};
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int column = first + e * step;
      if (column >= b.width) continue;
      const Floats<N> weight(b.weight + column);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float d = dy[e][j];
        const float x = (s[e][j] - mean) * rstd;
        const float g = d * weight.v[j];
        dweight[e][j] += d * x;
        if constexpr (Centered) {
          dbias[e][j] += d;
          sums.a += g;
        }
        sums.b += g * x;
      }
    }
    sums = row_sums(sums, shared[threadIdx.y][turn]);
    turn = 1 - turn;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      s[e].keep_packed();
      dy[e].keep_packed();
    }
    // dx = rstd · (g − Σg/n − x·Σgx/n), with x = (s − mean)·rstd: of the form g·rstd + (s − mean)·p + q.
    const float p = -sums.b * inverse * rstd * rstd;
    const float q = -sums.a * inverse * rstd;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int column = first + e * step;
      if (column >= b.width) continue;
      const Floats<N> weight(b.weight + column);
      Pack<T, N> dx;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float v = fmaf(s[e][j] - mean, p, q);
        if (b.dsum != nullptr) v += more[e][j];
        dx.v[j] = narrow<T>(fmaf(dy[e][j] * weight.v[j], rstd, v));
      }
      store<N>(b.dx + row + column, dx);
    }
  }
  float* const mine = blockDim.y == 1 ? b.partials + static_cast<std::int64_t>(blockIdx.x) * b.stride
                                      : columns + static_cast<int>(threadIdx.y) * b.stride;
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const int column = first + e * step;
    if (column >= b.width) continue;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      mine[column + j] = dweight[e][j];
      if (b.stride > b.width) mine[b.width + column + j] = dbias[e][j];
    }
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < b.stride; i += threads) {
    float sum = columns[i];
    for (int y = 1; y < static_cast<int>(blockDim.y); ++y) sum += columns[y * b.stride + i];
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
  if (b.stride > b.width) mine[b.width + column] = dbias;
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

// Sums of the columns of partials[count][stride]: 32 columns to a block, its warps share out the rows.
__global__ void join_kernel(const float* partials, int count, int stride, int width, float* dweight, float* dbias) {
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
  if (column < width)
    dweight[column] = sum;
  else
    dbias[column - width] = sum;
}

template <bool Centered, class T>
void run_long(const GradShape& shape, const Backward<T>& b, cudaStream_t stream) {
  long_columns_kernel<Centered, T>
      <<<dim3(blocks(pieces(shape.width, kLongThreads)), blocks(shape.grid)), kLongThreads, 0, stream>>>(b);
  if (shape.rows > 0) long_rows_kernel<Centered, T><<<blocks(shape.rows), kLongThreads, 0, stream>>>(b);
}

template <bool Centered, class T>
void run(const GradShape& shape, const Backward<T>& b, cudaStream_t stream) {
  const auto start = [&]<int N, int E>(std::integral_constant<int, N>, std::integral_constant<int, E>) {
    backward_kernel<Centered, N, E, T><<<blocks(shape.grid), shape.block(), shape.shared(), stream>>>(b);
  };
  const auto packed = [&]<int N>(std::integral_constant<int, N> n) {
    switch (shape.packs) {
      case 1: return start(n, std::integral_constant<int, 1>{});
      case 2: return start(n, std::integral_constant<int, 2>{});
      case 3: return start(n, std::integral_constant<int, 3>{});
      case 4: return start(n, std::integral_constant<int, 4>{});
      default: return run_long<Centered, T>(shape, b, stream);
    }
  };
  if (shape.pack == 1)
    packed(std::integral_constant<int, 1>{});
  else
    packed(std::integral_constant<int, kWidest<T>>{});
}

template <bool Centered>
std::shared_ptr<device::Kernel> prepare_backward(const ir::KernelSpec& spec) {
  const GradShape shape(spec);
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
      b.width = static_cast<int>(shape.width);
      b.stride = has_bias ? 2 * b.width : b.width;
      run<Centered, T>(shape, b, stream_of(launch));
      join_kernel<<<blocks(pieces(b.stride, 32)), dim3(32, 32), 0, stream_of(launch)>>>(
          b.partials, static_cast<int>(shape.grid), b.stride, b.width, launch.out<float>(1),
          has_bias ? launch.out<float>(2) : nullptr);
      device::cuda::launched("norm_grad");
    });
  });
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<true>(s);
}
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cuda(const ir::KernelSpec& s) {
  return prepare_backward<false>(s);
}

std::size_t row_norm_grad_workspace_cuda(const ir::KernelSpec& spec) {
  const GradShape shape(spec);
  return static_cast<std::size_t>(shape.grid * shape.width) * (spec.outputs.size() - 1) * sizeof(float);
}

}  // namespace trireme::ops
