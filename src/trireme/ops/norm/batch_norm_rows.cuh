#pragma once
#include "trireme/ops/cuda/common.h"

// How batch normalisation shares out its rows, and how a thread reads them.
namespace trireme::ops::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kAlone = 8;      // the same where a kernel reads one tensor and writes none
inline constexpr int kRowsAhead = 4;  // loads of a thread on their way at once
// Where sums are taken: as many as an H100 or H200 has at once, two to a processor. More would wait for these.
inline constexpr std::int64_t kNormBlocks = 264;

// N neighbours as they lie in memory, two 16-bit values to a register until they are used.
template <int N, class T>
struct Row {
  static constexpr bool kPairs = sizeof(T) == 2 && N % 2 == 0;
  static constexpr int kWords = kPairs ? N / 2 : N;
  using Word = std::conditional_t<kPairs, unsigned, T>;
  Word w[kWords];

  __device__ __forceinline__ void load(const T* p) {
    const Pack<Word, kWords> pack = cuda::load<kWords>(reinterpret_cast<const Word*>(p));
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = pack.v[i];
  }
  __device__ __forceinline__ void store(T* p) const {
    Pack<Word, kWords> pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i) pack.v[i] = w[i];
    cuda::store<kWords>(reinterpret_cast<Word*>(p), pack);
  }
  __device__ __forceinline__ float operator[](int j) const {
    if constexpr (!kPairs)
      return wide(w[j]);
    else if constexpr (std::is_same_v<T, Bf16>)  // the upper half of an f32
      return __uint_as_float(j % 2 == 0 ? w[j / 2] << 16 : w[j / 2] & 0xffff0000U);
    else
      return wide(__ushort_as_half(static_cast<unsigned short>(j % 2 == 0 ? w[j / 2] : w[j / 2] >> 16)));
  }
  __device__ __forceinline__ void set(const float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      if constexpr (!kPairs) {
        w[i] = narrow<T>(v[i]);
      } else if constexpr (std::is_same_v<T, Bf16>) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        w[i] = *reinterpret_cast<const unsigned*>(&both);
      } else {
        const __half2 both = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
        w[i] = *reinterpret_cast<const unsigned*>(&both);
      }
  }
};

// How rows [rows, channels] are shared out: by the sizes alone, whatever N is.
struct NormGrid {
  std::int64_t rows = 0;
  int channels = 0;
  int widest = 1;  // channels of a thread where pointers allow it
  std::int64_t chunks = 1;

  explicit NormGrid(const TensorType& x) {
    channels = static_cast<int>(x.shape.back());
    rows = channels == 0 ? 0 : x.elements() / channels;
    const int most = static_cast<int>(16 / size_of(x.dtype));
    widest = channels % most == 0 ? most : 1;
    const std::int64_t least = static_cast<std::int64_t>(down(widest)) * kRowsAhead;
    chunks = std::clamp<std::int64_t>(kNormBlocks / columns(widest), 1, std::max<std::int64_t>(1, pieces(rows, least)));
  }
  int across(int n) const {  // threads side by side
    int threads = 1;
    while (threads < 32 && threads * n < channels) threads *= 2;
    return threads;
  }
  int down(int n) const { return kNormThreads / across(n); }
  std::int64_t columns(int n) const { return pieces(channels, static_cast<std::int64_t>(across(n)) * n); }
  dim3 threads(int n) const { return dim3(static_cast<unsigned>(across(n)), static_cast<unsigned>(down(n))); }
  dim3 grid(int n) const { return dim3(blocks(columns(n)), blocks(chunks)); }
  // Where nothing is summed up there may be more blocks, so many times as many.
  dim3 free_grid(int n, int times) const {
    const std::int64_t least = static_cast<std::int64_t>(down(n)) * kRowsAhead;
    const std::int64_t most = std::max<std::int64_t>(1, times * kNormBlocks / columns(n));
    return dim3(blocks(columns(n)), blocks(std::clamp<std::int64_t>(pieces(rows, least), 1, most)));
  }
};

// Rows of a block. The first few chunks have one more than the others.
struct NormRows {
  std::int64_t begin, end;
  __device__ NormRows(std::int64_t rows, std::int64_t chunk, std::int64_t chunks) {
    const std::int64_t each = rows / chunks, rest = rows % chunks;
    begin = chunk * each + (chunk < rest ? chunk : rest);
    end = begin + each + (chunk < rest ? 1 : 0);
  }
};

template <int N>
__device__ __forceinline__ int norm_channel() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * N;
}

// Calls body(first row, how many of Ahead) for the rows of a thread.
template <int Ahead, class F>
__device__ __forceinline__ void over_rows(const NormRows& rows, F&& body) {
  const auto step = static_cast<std::int64_t>(blockDim.y);
  std::int64_t r = rows.begin + threadIdx.y;
  for (; r + (Ahead - 1) * step < rows.end; r += Ahead * step) body(r, Ahead);
  if (r < rows.end) body(r, static_cast<int>((rows.end - r + step - 1) / step));
}

}  // namespace trireme::ops::cuda
