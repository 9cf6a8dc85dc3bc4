#include "trireme/ops/attention/attention_tiles.cuh"
#include "trireme/ops/attention/cached_attention_int8.h"
#include "trireme/ops/attention/cuda_kernels.h"

// Attention over keys and values that are kept in 8 bits. A block of threads has one query, or several, of a head and
// goes through the keys, kKeys at a time: each thread multiplies one of them by the queries, then four features of the
// values by the weights of every few keys. Codes are read as they are; scales are applied to scores and weights.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kKeys = kThreads;
constexpr int kFeatures = 4;  // of the values, by a thread at once
constexpr std::int64_t kTogether = 8;

struct KeptSizes {
  std::int64_t queries, heads, key_heads, room;
  int dim;
  float scale;
  bool vectors = false, fours = false;  // rows of codes are read 16 bytes at a time, or 4
};

struct KeptRows {
  const std::int8_t* codes;
  const float* scales;
};

// New rows behind those that are there, a warp to a row; a row past the cache's end is dropped, and one with an element
// that is not finite has a scale that is not a number.
template <class T>
__global__ void keep_rows_kernel(Heads<const T> rows, std::int8_t* codes, float* scales, const std::int32_t* position,
                                 std::int64_t count, KeptSizes z) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (at >= count) return;
  const std::int64_t r = at % z.queries, h = at / z.queries % z.key_heads, b = at / z.queries / z.key_heads;
  if (*position < 0 || *position + r >= z.room) return;
  const T* const x = rows.at(b, r, h);
  const std::int64_t place = (b * z.key_heads + h) * z.room + *position + r;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float most = 0, wrong = 0;  // x·0 is 0 or not a number
  for (int d = lane; d < z.dim; d += 32) {
    const float v = wide(x[d]);
    most = fmaxf(most, fabsf(v));
    wrong += v * 0.0F;
  }
  most = warp_reduce<Largest>(most);
  wrong = warp_reduce<Add>(wrong);
  const float scale = most / 127.0F, divisor = scale > 0 ? scale : 1.0F;
  for (int d = lane; d < z.dim; d += 32)
    codes[place * z.dim + d] = static_cast<std::int8_t>(__float2int_rn(wide(x[d]) / divisor));
  if (lane == 0) scales[place] = scale + wrong;
}

// Four codes in a word, as floats.
__device__ __forceinline__ void widen_four(unsigned word, float (&out)[4]) {
  word ^= 0x80808080U;
#pragma unroll
  for (unsigned b = 0; b < 4; ++b) out[b] = __uint_as_float(__byte_perm(word, 0x4b000000U, 0x7440U + b)) - 8388736.0F;
}

// Up to four features of a row, those past its end 0.
__device__ __forceinline__ void load_features(const std::int8_t* row, int d, const KeptSizes& z, float (&out)[4]) {
  if (z.fours) return widen_four(__ldg(reinterpret_cast<const unsigned*>(row + d)), out);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = d + i < z.dim ? static_cast<float>(row[d + i]) : 0.0F;
}

// A key by Q queries, which lie in shared memory in rows of `stride` floats with zeros past their ends.
template <int Q>
__device__ __forceinline__ void score(const std::int8_t* key, const float* queries, int stride, const KeptSizes& z,
                                      float (&sum)[Q]) {
  const auto four = [&](const float(&k)[4], int d) {
#pragma unroll
    for (int i = 0; i < Q; ++i) {
      const Pack<float, 4> q = load<4>(queries + i * stride + d);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i] = fmaf(k[j], q.v[j], sum[i]);
    }
  };
  float k[4];
  if (z.vectors) {
    for (int d = 0; d < z.dim; d += 16) {
      const uint4 codes = __ldg(reinterpret_cast<const uint4*>(key + d));
      const unsigned words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        widen_four(words[w], k);
        four(k, d + w * 4);
      }
    }
    return;
  }
  for (int d = 0; d < z.dim; d += 4) {
    load_features(key, d, z, k);
    four(k, d);
  }
}

// Features of a query in shared memory.
__host__ __device__ constexpr int padded_dim(int dim) { return (dim + kFeatures - 1) / kFeatures * kFeatures; }

template <class T, int Q>
__global__ void __launch_bounds__(kThreads)
    kept_attention_kernel(Heads<const T> q, KeptRows keys, KeptRows values, Heads<T> o, const std::int32_t* position,
                          KeptSizes z) {
  extern __shared__ __align__(16) float kept_shared[];
  __shared__ float reduced[kThreads / 32];
  const int stride = padded_dim(z.dim);
  float* const queries = kept_shared;           // [Q][stride], then where sums of features meet
  float* const weights = queries + Q * stride;  // [Q][kKeys]
  const std::int64_t b = blockIdx.z, h = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * Q;
  const std::int64_t head = (b * z.key_heads + h / (z.heads / z.key_heads)) * z.room;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < Q * stride; i += kThreads) {
    const int row = i / stride, d = i % stride;
    const bool there = first + row < z.queries && d < z.dim;
    queries[i] = there ? wide(q.at(b, first + row, h)[d]) * (z.scale * kLog2e) : 0.0F;
  }
  const int sharing = stride / kFeatures, strands = kThreads / sharing;
  const int strand = thread / sharing, feature = thread % sharing * kFeatures;
  float sum[Q][kFeatures] = {}, top[Q], total[Q];
#pragma unroll
  for (int i = 0; i < Q; ++i) {
    top[i] = -INFINITY;
    total[i] = 0;
  }
  // Query i sees the keys up to position + i.
  const std::int64_t last = first + Q < z.queries ? first + Q : z.queries;
  const std::int64_t shift = *position, filled = shift + last, seen = filled < z.room ? filled : z.room;
  for (std::int64_t begin = 0; begin < seen; begin += kKeys) {
    __syncthreads();
    const std::int64_t key = begin + thread;
    float scores[Q] = {};
    if (key < seen) score<Q>(keys.codes + (head + key) * z.dim, queries, stride, z, scores);
    const float scale = key < seen ? keys.scales[head + key] : 0.0F;
    const float value_scale = key < seen ? values.scales[head + key] : 0.0F;
#pragma unroll
    for (int i = 0; i < Q; ++i) {
      const bool sees = key < seen && key <= shift + first + i;
      const float own = sees ? scores[i] * scale : -INFINITY;
      const float most = fmaxf(top[i], block_reduce<Largest>(own, reduced));
      const float factor = top[i] == -INFINITY ? 0.0F : exp2f(top[i] - most);
      top[i] = most;
      const float weight = most == -INFINITY ? 0.0F : exp2f(own - most);
      total[i] = fmaf(total[i], factor, weight);
#pragma unroll
      for (int j = 0; j < kFeatures; ++j) sum[i][j] *= factor;
      weights[i * kKeys + thread] = sees ? weight * value_scale : 0.0F;
    }
    __syncthreads();
    const std::int64_t here = seen - begin < kKeys ? seen - begin : kKeys;
    if (strand >= strands) continue;
#pragma unroll 4
    for (int k = strand; k < here; k += strands) {
      float v[kFeatures];
      load_features(values.codes + (head + begin + k) * z.dim, feature, z, v);
#pragma unroll
      for (int i = 0; i < Q; ++i)
#pragma unroll
        for (int j = 0; j < kFeatures; ++j) sum[i][j] = fmaf(weights[i * kKeys + k], v[j], sum[i][j]);
    }
  }
  // The strands' sums, one query after the other.
#pragma unroll
  for (int i = 0; i < Q; ++i) {
    const float whole = block_reduce<Add>(total[i], reduced);
    __syncthreads();
    float* const parts = weights;
    if (strand < strands)
#pragma unroll
      for (int j = 0; j < kFeatures; ++j) parts[strand * stride + feature + j] = sum[i][j];
    __syncthreads();
    if (first + i >= z.queries) continue;
    for (int d = thread; d < z.dim; d += kThreads) {
      float all = 0;
      for (int s = 0; s < strands; ++s) all += parts[s * stride + d];
      o.at(b, first + i, h)[d] = narrow<T>(all / whole);
    }
  }
}

// The queries of a block and their weights, in whose place the sums meet: four floats a thread.
template <int Q>
std::size_t shared_bytes(int dim) {
  const int sums = kThreads * kFeatures, weights = Q * kKeys;
  return static_cast<std::size_t>(Q * padded_dim(dim) + (weights > sums ? weights : sums)) * sizeof(float);
}

template <class T, int Q>
void attend_kept(const device::Launch& launch, const AttentionShape& s, const Heads<const T>& q, const KeptSizes& z) {
  const auto kept = [&](std::size_t i) { return KeptRows{launch.out<std::int8_t>(i), launch.out<float>(i + 1)}; };
  kept_attention_kernel<T, Q><<<dim3(blocks(pieces(s.queries, Q)), blocks(s.heads), blocks(s.batch)), kThreads,
                                shared_bytes<Q>(z.dim), stream_of(launch)>>>(
      q, kept(1), kept(3), heads_of(launch.out<T>(0), s.queries, s.heads, s.dim), launch.in<std::int32_t>(7), z);
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_cached_attention_int8_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, {{"causal", true}, {"scale", spec.attributes.real("scale")}});
  const std::int64_t room = spec.inputs[3].shape[2];
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([s, room](const device::Launch& launch) {
      const cudaStream_t stream = stream_of(launch);
      const AttentionOperands<T> in(launch, s);
      KeptSizes z{s.queries, s.heads, s.key_heads, room, static_cast<int>(s.dim), s.scale};
      z.vectors = s.dim % 16 == 0;
      z.fours = s.dim % 4 == 0;
      const auto rows = static_cast<std::size_t>(s.batch * s.key_heads * room);
      const std::int64_t fresh = s.batch * s.key_heads * s.queries;
      // Codes and scales of keys are outputs 1 and 2, those of values 3 and 4.
      for (const std::size_t i : {std::size_t{1}, std::size_t{3}}) {
        for (const auto& [part, bytes] :
             {std::pair(i, rows * static_cast<std::size_t>(s.dim)), std::pair(i + 1, rows * sizeof(float))})
          if (launch.outputs[part] != launch.inputs[part + 2])
            TRI_CUDA(cudaMemcpyAsync(launch.outputs[part], launch.inputs[part + 2], bytes, cudaMemcpyDeviceToDevice,
                                     stream));
        keep_rows_kernel<T><<<blocks(pieces(fresh, kThreads / 32)), kThreads, 0, stream>>>(
            i == 1 ? in.k : in.v, launch.out<std::int8_t>(i), launch.out<float>(i + 1), launch.in<std::int32_t>(7),
            fresh, z);
        z.vectors = z.vectors && aligned16(launch.outputs[i]);
        z.fours = z.fours && aligned16(launch.outputs[i]);
      }
      if (s.queries == 1)
        attend_kept<T, 1>(launch, s, in.q, z);
      else
        attend_kept<T, kTogether>(launch, s, in.q, z);
      device::cuda::launched("cached_attention_int8");
    });
  });
}

}  // namespace trireme::ops
