#include "trireme/ops/attention/attention_tiles.cuh"
#include "trireme/ops/attention/cuda_kernels.h"

// Attention's gradient for whatever types and sizes: what runs where neither the library's kernels do nor those for
// Hopper. Two passes, one per block of queries and one per block of keys, so that nothing is added to memory by two
// blocks of threads.
namespace trireme::ops {
namespace {

using namespace cuda;

// delta[b,h,s] = Σ do · o: a warp to a row.
template <class T>
__global__ void delta_kernel(Heads<const T> o, Heads<const T> d, float* delta, AttentionSizes z, std::int64_t rows) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (i >= rows) return;
  const std::int64_t s = i % z.queries, h = i / z.queries % z.heads, b = i / z.queries / z.heads;
  const T* left = o.at(b, s, h);
  const T* right = d.at(b, s, h);
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x % 32); c < z.dim; c += 32) sum += wide(left[c]) * wide(right[c]);
  sum = warp_reduce<Add>(sum);
  if (threadIdx.x % 32 == 0) delta[i] = sum;
}

template <class T>
struct Backward {
  Heads<const T> q, k, v, d;
  const float *lse, *delta;
  Heads<T> dq, dk, dv;
  AttentionSizes z;
};

// dQ = dS·K with dS = P∘(dO·Vᵀ − delta)·scale.
template <class Tiles, class T = typename Tiles::T>
__global__ void __launch_bounds__(kAttentionThreads, Tiles::kQueryBlocks) query_kernel(Backward<T> w) {
  using M = typename Tiles::M;
  constexpr int kPass = Tiles::kPass, kStride = Tiles::kStride;
  extern __shared__ __align__(16) unsigned char shared[];
  const AttentionSizes& z = w.z;
  T* const queries = reinterpret_cast<T*>(shared);
  T* const douts = queries + Tiles::kStay * kStride;
  T* const keys = douts + Tiles::kStay * kStride;
  T* const values = keys + kPass * kStride;
  const std::int64_t b = blockIdx.z, h = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * Tiles::kStay;
  const std::int64_t g = h / z.group, shift = z.keys - z.queries;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
  Tiles::template fetch<Tiles::kStay>(queries, w.q, b, h, first, z.queries, z);
  Tiles::template fetch<Tiles::kStay>(douts, w.d, b, h, first, z.queries, z);
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t query = first + row + half * 8, at = (b * z.heads + h) * z.queries + query;
    lse[half] = query < z.queries ? w.lse[at] * kLog2e : INFINITY;
    delta[half] = query < z.queries ? w.delta[at] : 0.0F;
  }
  Sums dq[Tiles::kDim / 8];
  const std::int64_t last = first + Tiles::kStay < z.queries ? first + Tiles::kStay : z.queries;
  const std::int64_t seen = z.causal ? last + shift : z.keys;
  const std::int64_t start[2] = {z.start(b, first + row), z.start(b, first + row + 8)};
  const std::int64_t latest = z.start(b, last - 1);
  for (std::int64_t begin = z.start(b, first) / kPass * kPass; begin < seen; begin += kPass) {
    __syncthreads();
    Tiles::template fetch<kPass>(keys, w.k, b, g, begin, z.keys, z);
    Tiles::template fetch<kPass>(values, w.v, b, g, begin, z.keys, z);
    wait_copies();
    __syncthreads();
    Sums s[kPass / 8], dp[kPass / 8];
    multiply_rows<M, Tiles::kDim, kStride>(s, queries + warp * 16 * kStride, keys);
    multiply_rows<M, Tiles::kDim, kStride>(dp, douts + warp * 16 * kStride, values);
    const bool visible =
        begin + kPass <= z.keys && (!z.causal || begin + kPass - 1 <= first + shift) && begin >= latest;
#pragma unroll
    for (int j = 0; j < kPass / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t key = begin + j * 8 + column + e % 2, query = first + row + e / 2 * 8;
        const bool sees = visible || (key < z.keys && (!z.causal || key <= query + shift) && key >= start[e / 2]);
        const float p = sees ? exp2f(fmaf(s[j].v[e], z.scale * kLog2e, -lse[e / 2])) : 0.0F;
        s[j].v[e] = p * (dp[j].v[e] - delta[e / 2]) * z.scale;
      }
    multiply_columns<M, kStride>(dq, s, keys);
  }
  Tiles::write(w.dq, b, h, first + warp * 16, z.queries, dq, 0, 1, 1, z);
}

// dV = Pᵀ·dO and dK = dSᵀ·Q: a block of keys of one head, against the queries of all heads that share it; of wide heads
// a part of the columns.
template <class Tiles>
constexpr int kColumns = Tiles::kDim < 128 ? Tiles::kDim : 128;

template <class Tiles, class T = typename Tiles::T>
__global__ void __launch_bounds__(kAttentionThreads, Tiles::kKeyBlocks) key_kernel(Backward<T> w) {
  using M = typename Tiles::M;
  constexpr int kPass = Tiles::kPass, kStride = Tiles::kStride, kParts = Tiles::kDim / kColumns<Tiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float lse[kPass], delta[kPass];
  __shared__ int starts[kPass];
  const AttentionSizes& z = w.z;
  T* const keys = reinterpret_cast<T*>(shared);
  T* const values = keys + Tiles::kStay * kStride;
  T* const queries = values + Tiles::kStay * kStride;
  T* const douts = queries + kPass * kStride;
  const std::int64_t b = blockIdx.z, g = blockIdx.y, shift = z.keys - z.queries;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x / kParts) * Tiles::kStay;
  const int left = static_cast<int>(blockIdx.x % kParts) * kColumns<Tiles>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
  Tiles::template fetch<Tiles::kStay>(keys, w.k, b, g, first, z.keys, z);
  Tiles::template fetch<Tiles::kStay>(values, w.v, b, g, first, z.keys, z);
  Sums dk[kColumns<Tiles> / 8], dv[kColumns<Tiles> / 8];
  // The first query that sees any of these keys.
  std::int64_t start = z.causal && first - shift > 0 ? first - shift : 0;
  start = start / kPass * kPass;
  for (std::int64_t h = g * z.group; h < (g + 1) * z.group; ++h)
    for (std::int64_t begin = start; begin < z.queries; begin += kPass) {
      // Where a document begins behind these keys no later query sees them either.
      if (z.start(b, begin) >= first + Tiles::kStay) break;
      __syncthreads();
      Tiles::template fetch<kPass>(queries, w.q, b, h, begin, z.queries, z);
      Tiles::template fetch<kPass>(douts, w.d, b, h, begin, z.queries, z);
      if (threadIdx.x < kPass) {
        const std::int64_t query = begin + threadIdx.x, at = (b * z.heads + h) * z.queries + query;
        lse[threadIdx.x] = query < z.queries ? w.lse[at] * kLog2e : INFINITY;
        delta[threadIdx.x] = query < z.queries ? w.delta[at] : 0.0F;
        starts[threadIdx.x] = static_cast<int>(z.start(b, query));
      }
      wait_copies();
      __syncthreads();
      Sums s[kPass / 8], dp[kPass / 8];
      multiply_rows<M, Tiles::kDim, kStride>(s, keys + warp * 16 * kStride, queries);
      multiply_rows<M, Tiles::kDim, kStride>(dp, values + warp * 16 * kStride, douts);
      const bool visible =
          (!z.causal || first + Tiles::kStay - 1 <= begin + shift) && starts[kPass - 1] <= first;  // all of them
#pragma unroll
      for (int j = 0; j < kPass / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = j * 8 + column + e % 2;
          const std::int64_t key = first + row + e / 2 * 8;
          const bool sees = visible || ((!z.causal || key <= begin + i + shift) && key >= starts[i]);
          s[j].v[e] = sees ? exp2f(fmaf(s[j].v[e], z.scale * kLog2e, -lse[i])) : 0.0F;
          dp[j].v[e] = s[j].v[e] * (dp[j].v[e] - delta[i]) * z.scale;
        }
      multiply_columns<M, kStride>(dv, s, douts + left);
      multiply_columns<M, kStride>(dk, dp, queries + left);
    }
  Tiles::write(w.dk, b, g, first + warp * 16, z.keys, dk, left, 1, 1, z);
  Tiles::write(w.dv, b, g, first + warp * 16, z.keys, dv, left, 1, 1, z);
}

}  // namespace

std::size_t plain_attention_grad_workspace_cuda(const ir::KernelSpec& spec) { return spec.inputs[4].bytes(); }

std::shared_ptr<device::Kernel> prepare_plain_attention_grad_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return with_tiles(s.dim, spec.inputs[0].dtype, spec.attributes.boolean("tf32"),
                    [&]<class Tiles>(Tiles) -> std::shared_ptr<device::Kernel> {
                      using T = typename Tiles::T;
                      allow_shared(query_kernel<Tiles>, Tiles::shared(2, 2));
                      allow_shared(key_kernel<Tiles>, Tiles::shared(2, 2));
                      return make_kernel([s](const device::Launch& launch) {
                        const cudaStream_t stream = stream_of(launch);
                        const AttentionOperands<T> in(launch, s);
                        auto* const delta = static_cast<float*>(launch.workspace);
                        const auto o = heads_of(launch.in<T>(3), s.queries, s.heads, s.dim);
                        const auto d = heads_of(launch.in<T>(5), s.queries, s.heads, s.dim);
                        Backward<T> w{in.q,  in.k, in.v, d,  launch.in<float>(4),
                                      delta, {},   {},   {}, {s, sizeof(T), launch, starts_in(launch, kStartsOfGrad)}};
                        if (s.packed) {
                          w.dq = packed_part(launch.out<T>(0), 0, s.queries, s.heads, s.dim);
                          w.dk = packed_part(launch.out<T>(0), 1, s.queries, s.heads, s.dim);
                          w.dv = packed_part(launch.out<T>(0), 2, s.queries, s.heads, s.dim);
                        } else {
                          w.dq = heads_of(launch.out<T>(0), s.queries, s.heads, s.dim);
                          w.dk = heads_of(launch.out<T>(1), s.keys, s.key_heads, s.dim);
                          w.dv = heads_of(launch.out<T>(2), s.keys, s.key_heads, s.dim);
                        }
                        const std::int64_t rows = s.batch * s.heads * s.queries;
                        delta_kernel<T><<<blocks(pieces(rows * 32, 256)), 256, 0, stream>>>(o, d, delta, w.z, rows);
                        const auto grid = [&](std::int64_t of, std::int64_t heads, int parts) {
                          return dim3(blocks(pieces(of, Tiles::kStay) * parts), blocks(heads), blocks(s.batch));
                        };
                        query_kernel<Tiles>
                            <<<grid(s.queries, s.heads, 1), kAttentionThreads, Tiles::shared(2, 2), stream>>>(w);
                        key_kernel<Tiles><<<grid(s.keys, s.key_heads, Tiles::kDim / kColumns<Tiles>), kAttentionThreads,
                                            Tiles::shared(2, 2), stream>>>(w);
                        device::cuda::launched("attention_grad");
                      });
                    });
}

}  // namespace trireme::ops
