#include "trireme/ops/attention/attention_tiles.cuh"
#include "trireme/ops/attention/cuda_kernels.h"

// Attention for whatever types and sizes: what runs where the library's kernels do not; and with a cache of keys.
namespace trireme::ops {
namespace {

using namespace cuda;

template <class Op>
__device__ __forceinline__ float over_row(float x) {
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2) x = Op()(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

// `position`: keys before the first query; null: as many as there are more keys than queries.
template <class Tiles, class T = typename Tiles::T>
__global__ void __launch_bounds__(kAttentionThreads)
    forward_kernel(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> o, float* lse,
                   const std::int32_t* position, AttentionSizes z) {
  using M = typename Tiles::M;
  constexpr int kPass = Tiles::kPass, kStride = Tiles::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const queries = reinterpret_cast<T*>(shared);
  T* const keys = queries + Tiles::kStay * kStride;
  T* const values = keys + kPass * kStride;
  const std::int64_t b = blockIdx.z, h = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * Tiles::kStay;
  const std::int64_t g = h / z.group;
  const std::int64_t shift = position != nullptr ? *position : z.keys - z.queries;
  const std::int64_t all = position != nullptr ? shift + z.queries : z.keys;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
  Tiles::template fetch<Tiles::kStay>(queries, q, b, h, first, z.queries, z);
  Sums out[Tiles::kDim / 8];
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};                                       // in powers of two
  const std::int64_t last = first + Tiles::kStay < z.queries ? first + Tiles::kStay : z.queries;  // of the queries
  const std::int64_t seen = z.causal && last + shift < all ? last + shift : all;
  const std::int64_t start[2] = {z.start(b, first + row), z.start(b, first + row + 8)};
  const std::int64_t latest = z.start(b, last - 1);
  for (std::int64_t begin = z.start(b, first) / kPass * kPass; begin < seen; begin += kPass) {
    __syncthreads();
    Tiles::template fetch<kPass>(keys, k, b, g, begin, all, z);
    Tiles::template fetch<kPass>(values, v, b, g, begin, all, z);
    wait_copies();
    __syncthreads();
    Sums s[kPass / 8];
    multiply_rows<M, Tiles::kDim, kStride>(s, queries + warp * 16 * kStride, keys);
    const bool visible = begin + kPass <= all && (!z.causal || begin + kPass - 1 <= first + shift) && begin >= latest;
    float most[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < kPass / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t key = begin + j * 8 + column + e % 2, query = first + row + e / 2 * 8;
        const bool sees = visible || (key < all && (!z.causal || key <= query + shift) && key >= start[e / 2]);
        s[j].v[e] = sees ? s[j].v[e] * (z.scale * kLog2e) : -INFINITY;
        most[e / 2] = fmaxf(most[e / 2], s[j].v[e]);
      }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = over_row<Largest>(most[half]);
      factor[half] = top[half] == -INFINITY ? 0.0F : exp2f(top[half] - most[half]);
      top[half] = most[half];
      total[half] *= factor[half];
      if (most[half] == -INFINITY) most[half] = 0;
    }
#pragma unroll
    for (int j = 0; j < kPass / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j].v[e] = exp2f(s[j].v[e] - most[e / 2]);
        total[e / 2] += s[j].v[e];
      }
#pragma unroll
    for (Sums& c : out)
#pragma unroll
      for (int e = 0; e < 4; ++e) c.v[e] *= factor[e / 2];
    multiply_columns<M, kStride>(out, s, values);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] = over_row<Add>(total[half]);
    const std::int64_t query = first + row + half * 8;
    if (lse != nullptr && lane % 4 == 0 && query < z.queries)
      lse[(b * z.heads + h) * z.queries + query] = (top[half] + log2f(total[half])) * kLn2;
  }
  Tiles::write(o, b, h, first + warp * 16, z.queries, out, 0, 1 / total[0], 1 / total[1], z);
}

template <class Tiles>
dim3 grid_of(const AttentionShape& s) {
  return {blocks(pieces(s.queries, Tiles::kStay)), blocks(s.heads), blocks(s.batch)};
}

// New rows go behind those that are there; a row past the cache's end is dropped.
template <class T>
__global__ void append_kernel(Heads<const T> rows, Heads<T> cache, const std::int32_t* position, std::int64_t count,
                              std::int64_t heads, int dim, std::int64_t room, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t c = i % dim, h = i / dim % heads, r = i / dim / heads % count, b = i / dim / heads / count;
  if (*position >= 0 && *position + r < room) cache.at(b, *position + r, h)[c] = rows.at(b, r, h)[c];
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_plain_attention_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return with_tiles(s.dim, spec.inputs[0].dtype, spec.attributes.boolean("tf32"),
                    [&]<class Tiles>(Tiles) -> std::shared_ptr<device::Kernel> {
                      using T = typename Tiles::T;
                      allow_shared(forward_kernel<Tiles>, Tiles::shared(1, 2));
                      return make_kernel([s](const device::Launch& launch) {
                        const AttentionOperands<T> in(launch, s);
                        forward_kernel<Tiles>
                            <<<grid_of<Tiles>(s), kAttentionThreads, Tiles::shared(1, 2), stream_of(launch)>>>(
                                in.q, in.k, in.v, heads_of(launch.out<T>(0), s.queries, s.heads, s.dim),
                                launch.out<float>(1), nullptr, {s, sizeof(T), launch, starts_in(launch, kStarts)});
                        device::cuda::launched("attention");
                      });
                    });
}

std::shared_ptr<device::Kernel> prepare_cached_attention_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, {{"causal", true}, {"scale", spec.attributes.real("scale")}});
  const std::int64_t room = spec.inputs[3].shape[2];
  return with_tiles(s.dim, spec.inputs[0].dtype, false, [&]<class Tiles>(Tiles) -> std::shared_ptr<device::Kernel> {
    using T = typename Tiles::T;
    allow_shared(forward_kernel<Tiles>, Tiles::shared(1, 2));
    return make_kernel([s, room](const device::Launch& launch) {
      const cudaStream_t stream = stream_of(launch);
      const AttentionOperands<T> in(launch, s);
      const auto* position = launch.in<std::int32_t>(5);
      const auto dim = static_cast<int>(s.dim);
      const std::int64_t n = s.batch * s.queries * s.key_heads * s.dim;
      const auto cache_of = [&](auto* data) {
        return Heads<std::remove_pointer_t<decltype(data)>>{data, s.key_heads * room * s.dim, s.dim, room * s.dim};
      };
      for (std::size_t i = 0; i < 2; ++i) {
        T* const cache = launch.out<T>(1 + i);
        if (cache != launch.in<T>(3 + i))
          TRI_CUDA(cudaMemcpyAsync(cache, launch.inputs[3 + i],
                                   static_cast<std::size_t>(s.batch * s.key_heads * room * s.dim) * sizeof(T),
                                   cudaMemcpyDeviceToDevice, stream));
        append_kernel<T><<<blocks(pieces(n, 256)), 256, 0, stream>>>(i == 0 ? in.k : in.v, cache_of(cache), position,
                                                                     s.queries, s.key_heads, dim, room, n);
      }
      AttentionSizes z(s, sizeof(T), launch);
      for (std::size_t i = 0; i < 2; ++i) z.whole = z.whole && aligned16(launch.outputs[1 + i]);
      forward_kernel<Tiles><<<grid_of<Tiles>(s), kAttentionThreads, Tiles::shared(1, 2), stream>>>(
          in.q, cache_of(const_cast<const T*>(launch.out<T>(1))), cache_of(const_cast<const T*>(launch.out<T>(2))),
          heads_of(launch.out<T>(0), s.queries, s.heads, s.dim), nullptr, position, z);
      device::cuda::launched("cached_attention");
    });
  });
}

bool supports_plain_attention_cuda(const ir::KernelSpec& spec) { return spec.inputs[0].shape.back() <= kMaxDim; }

}  // namespace trireme::ops
