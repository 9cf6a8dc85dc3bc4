#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/kernels.h"

// Attention by plain arithmetic, for whatever types and sizes: what runs where the library's kernels do not. Blocks of
// queries against blocks of keys, scores never in memory; the gradient takes two passes, one per block of queries and
// one per block of keys, so that nothing is added to memory by two blocks.
namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kRows = 16;    // of the block that stays
constexpr int kOthers = 32;  // of the block that passes by
constexpr int kThreads = 128;
constexpr int kLanes = kThreads / kRows;  // threads to a row
constexpr std::int64_t kMostDim = 256;

// [batch, rows, heads, dim] by strides.
template <class T>
struct View {
  T* data;
  std::int64_t batch, row, head;
  __device__ T* at(std::int64_t b, std::int64_t r, std::int64_t h) const {
    return data + b * batch + r * row + h * head;
  }
};

template <class T>
View<T> view_of(T* data, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data, rows * heads * dim, heads * dim, dim};
}
template <class T>
View<T> part_of(T* data, std::int64_t part, std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  return {data + part * heads * dim, rows * 3 * heads * dim, 3 * heads * dim, dim};
}

struct Sizes {
  std::int64_t queries, keys, heads, group;  // group: heads of q to one of k
  int dim;
  bool causal;
  float scale;
};

// Rows [first, first + count) of a head, as floats with a stride of dim + 1; rows past the end are 0.
template <class T>
__device__ void fetch(float* to, View<const T> from, std::int64_t b, std::int64_t h, std::int64_t first, int count,
                      std::int64_t end, int dim) {
  for (int i = static_cast<int>(threadIdx.x); i < count * dim; i += kThreads) {
    const int row = i / dim, column = i % dim;
    to[row * (dim + 1) + column] = first + row < end ? wide(from.at(b, first + row, h)[column]) : 0.0F;
  }
}

__device__ __forceinline__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class Op>
__device__ __forceinline__ float over_row(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x = Op()(x, __shfl_xor_sync(0xffffffffU, x, offset));
  return x;
}

std::size_t forward_shared(std::int64_t dim) {
  return static_cast<std::size_t>((2 * kRows + 2 * kOthers) * (dim + 1) + kRows * kOthers) * sizeof(float);
}

// `position`: keys before the first query; null: as many as there are more keys than queries.
template <class T>
__global__ void forward_kernel(View<const T> q, View<const T> k, View<const T> v, View<T> o, float* lse,
                               const std::int32_t* position, Sizes z) {
  extern __shared__ float shared[];
  const int dim = z.dim, stride = dim + 1;
  float* const queries = shared;
  float* const keys = queries + kRows * stride;
  float* const values = keys + kOthers * stride;
  float* const sums = values + kOthers * stride;
  float* const weights = sums + kRows * stride;
  const std::int64_t b = blockIdx.z, h = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t g = h / z.group;
  const std::int64_t shift = position != nullptr ? *position : z.keys - z.queries;
  const std::int64_t all = position != nullptr ? shift + z.queries : z.keys;
  const int row = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  fetch(queries, q, b, h, first, kRows, z.queries, dim);
  for (int c = lane; c < dim; c += kLanes) sums[row * stride + c] = 0;
  float top = -INFINITY, total = 0;
  const std::int64_t last = first + kRows < z.queries ? first + kRows : z.queries;  // of the queries
  const std::int64_t seen = z.causal ? (last + shift < all ? last + shift : all) : all;
  for (std::int64_t begin = 0; begin < seen; begin += kOthers) {
    __syncthreads();
    fetch(keys, k, b, g, begin, kOthers, all, dim);
    fetch(values, v, b, g, begin, kOthers, all, dim);
    __syncthreads();
    float score[kOthers / kLanes];
    float most = -INFINITY;
#pragma unroll
    for (int c = 0; c < kOthers / kLanes; ++c) {
      const int j = lane + c * kLanes;
      const bool visible = begin + j < all && (!z.causal || begin + j <= first + row + shift);
      score[c] = visible ? z.scale * dot(queries + row * stride, keys + j * stride, dim) : -INFINITY;
      most = fmaxf(most, score[c]);
    }
    most = fmaxf(top, over_row<Largest>(most));
    const float factor = top == -INFINITY ? 0.0F : expf(top - most);
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kOthers / kLanes; ++c) {
      const float p = score[c] == -INFINITY ? 0.0F : expf(score[c] - most);
      weights[row * kOthers + lane + c * kLanes] = p;
      sum += p;
    }
    total = total * factor + over_row<Add>(sum);
    top = most;
    __syncwarp();
    for (int c = lane; c < dim; c += kLanes) {
      float out = sums[row * stride + c] * factor;
      for (int j = 0; j < kOthers; ++j) out += weights[row * kOthers + j] * values[j * stride + c];
      sums[row * stride + c] = out;
    }
  }
  if (first + row >= z.queries) return;
  for (int c = lane; c < dim; c += kLanes) o.at(b, first + row, h)[c] = narrow<T>(sums[row * stride + c] / total);
  if (lane == 0 && lse != nullptr) lse[(b * z.heads + h) * z.queries + first + row] = top + logf(total);
}

// delta[b,h,s] = Σ do · o: a warp to a row.
template <class T>
__global__ void delta_kernel(View<const T> o, View<const T> d, float* delta, Sizes z, std::int64_t rows) {
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
  View<const T> q, k, v, d;
  const float *lse, *delta;
  View<T> dq, dk, dv;
  Sizes z;
};

std::size_t query_shared(std::int64_t dim) {
  return static_cast<std::size_t>((3 * kRows + 2 * kOthers) * (dim + 1) + kRows * kOthers) * sizeof(float);
}
std::size_t key_shared(std::int64_t dim) {
  return static_cast<std::size_t>((4 * kRows + 2 * kOthers) * (dim + 1) + 2 * kRows * kOthers) * sizeof(float);
}

template <class T>
__global__ void query_kernel(Backward<T> w) {
  extern __shared__ float shared[];
  const Sizes& z = w.z;
  const int dim = z.dim, stride = dim + 1;
  float* const queries = shared;
  float* const douts = queries + kRows * stride;
  float* const sums = douts + kRows * stride;
  float* const keys = sums + kRows * stride;
  float* const values = keys + kOthers * stride;
  float* const grads = values + kOthers * stride;
  const std::int64_t b = blockIdx.z, h = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t g = h / z.group, shift = z.keys - z.queries;
  const int row = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  fetch(queries, w.q, b, h, first, kRows, z.queries, dim);
  fetch(douts, w.d, b, h, first, kRows, z.queries, dim);
  for (int c = lane; c < dim; c += kLanes) sums[row * stride + c] = 0;
  const bool inside = first + row < z.queries;
  const std::int64_t at = (b * z.heads + h) * z.queries + first + row;
  const float lse = inside ? w.lse[at] : 0.0F, delta = inside ? w.delta[at] : 0.0F;
  const std::int64_t last = first + kRows < z.queries ? first + kRows : z.queries;
  const std::int64_t seen = z.causal ? last + shift : z.keys;
  for (std::int64_t begin = 0; begin < seen; begin += kOthers) {
    __syncthreads();
    fetch(keys, w.k, b, g, begin, kOthers, z.keys, dim);
    fetch(values, w.v, b, g, begin, kOthers, z.keys, dim);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kOthers / kLanes; ++c) {
      const int j = lane + c * kLanes;
      const bool visible = inside && begin + j < z.keys && (!z.causal || begin + j <= first + row + shift);
      float grad = 0;
      if (visible) {
        const float p = expf(z.scale * dot(queries + row * stride, keys + j * stride, dim) - lse);
        grad = p * (dot(douts + row * stride, values + j * stride, dim) - delta) * z.scale;
      }
      grads[row * kOthers + j] = grad;
    }
    __syncwarp();
    for (int c = lane; c < dim; c += kLanes) {
      float sum = sums[row * stride + c];
      for (int j = 0; j < kOthers; ++j) sum += grads[row * kOthers + j] * keys[j * stride + c];
      sums[row * stride + c] = sum;
    }
  }
  if (inside)
    for (int c = lane; c < dim; c += kLanes) w.dq.at(b, first + row, h)[c] = narrow<T>(sums[row * stride + c]);
}

// A block of keys of one head, against the queries of all heads that share it.
template <class T>
__global__ void key_kernel(Backward<T> w) {
  extern __shared__ float shared[];
  const Sizes& z = w.z;
  const int dim = z.dim, stride = dim + 1;
  float* const keys = shared;
  float* const values = keys + kRows * stride;
  float* const key_sums = values + kRows * stride;
  float* const value_sums = key_sums + kRows * stride;
  float* const queries = value_sums + kRows * stride;
  float* const douts = queries + kOthers * stride;
  float* const grads = douts + kOthers * stride;
  float* const weights = grads + kRows * kOthers;
  const std::int64_t b = blockIdx.z, g = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int64_t shift = z.keys - z.queries;
  const int row = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  fetch(keys, w.k, b, g, first, kRows, z.keys, dim);
  fetch(values, w.v, b, g, first, kRows, z.keys, dim);
  for (int c = lane; c < dim; c += kLanes) key_sums[row * stride + c] = value_sums[row * stride + c] = 0;
  // The first query that sees any of these keys.
  std::int64_t start = z.causal && first - shift > 0 ? first - shift : 0;
  start = start / kOthers * kOthers;
  for (std::int64_t h = g * z.group; h < (g + 1) * z.group; ++h)
    for (std::int64_t begin = start; begin < z.queries; begin += kOthers) {
      __syncthreads();
      fetch(queries, w.q, b, h, begin, kOthers, z.queries, dim);
      fetch(douts, w.d, b, h, begin, kOthers, z.queries, dim);
      __syncthreads();
#pragma unroll
      for (int c = 0; c < kOthers / kLanes; ++c) {
        const int i = lane + c * kLanes;
        const bool visible =
            begin + i < z.queries && first + row < z.keys && (!z.causal || first + row <= begin + i + shift);
        float p = 0, grad = 0;
        if (visible) {
          const std::int64_t at = (b * z.heads + h) * z.queries + begin + i;
          p = expf(z.scale * dot(queries + i * stride, keys + row * stride, dim) - w.lse[at]);
          grad = p * (dot(douts + i * stride, values + row * stride, dim) - w.delta[at]) * z.scale;
        }
        weights[row * kOthers + i] = p;
        grads[row * kOthers + i] = grad;
      }
      __syncwarp();
      for (int c = lane; c < dim; c += kLanes) {
        float dk = key_sums[row * stride + c], dv = value_sums[row * stride + c];
        for (int i = 0; i < kOthers; ++i) {
          dk += grads[row * kOthers + i] * queries[i * stride + c];
          dv += weights[row * kOthers + i] * douts[i * stride + c];
        }
        key_sums[row * stride + c] = dk;
        value_sums[row * stride + c] = dv;
      }
    }
  if (first + row >= z.keys) return;
  for (int c = lane; c < dim; c += kLanes) {
    w.dk.at(b, first + row, g)[c] = narrow<T>(key_sums[row * stride + c]);
    w.dv.at(b, first + row, g)[c] = narrow<T>(value_sums[row * stride + c]);
  }
}

template <class Kernel>
void allow_shared(Kernel kernel, std::size_t bytes) {
  TRI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

Sizes sizes_of(const AttentionShape& s) {
  return {s.queries, s.keys, s.heads, s.heads / s.key_heads, static_cast<int>(s.dim), s.causal, s.scale};
}

// The operands q, k, v of either layout.
template <class T>
struct Operands {
  View<const T> q, k, v;
  Operands(const device::Launch& l, const AttentionShape& s) {
    if (s.packed) {
      q = part_of(l.in<T>(0), 0, s.queries, s.heads, s.dim);
      k = part_of(l.in<T>(0), 1, s.queries, s.heads, s.dim);
      v = part_of(l.in<T>(0), 2, s.queries, s.heads, s.dim);
    } else {
      q = view_of(l.in<T>(0), s.queries, s.heads, s.dim);
      k = view_of(l.in<T>(1), s.keys, s.key_heads, s.dim);
      v = view_of(l.in<T>(2), s.keys, s.key_heads, s.dim);
    }
  }
};

dim3 grid_of(std::int64_t rows, std::int64_t heads, std::int64_t batch) {
  return {blocks(pieces(rows, kRows)), blocks(heads), blocks(batch)};
}

// New rows go behind those that are there; a row past the cache's end is dropped.
template <class T>
__global__ void append_kernel(View<const T> rows, View<T> cache, const std::int32_t* position, std::int64_t count,
                              std::int64_t heads, int dim, std::int64_t room, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t c = i % dim, h = i / dim % heads, r = i / dim / heads % count, b = i / dim / heads / count;
  if (*position >= 0 && *position + r < room) cache.at(b, *position + r, h)[c] = rows.at(b, r, h)[c];
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_plain_attention_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    allow_shared(forward_kernel<T>, forward_shared(s.dim));
    return make_kernel([s](const device::Launch& launch) {
      const Operands<T> in(launch, s);
      forward_kernel<T><<<grid_of(s.queries, s.heads, s.batch), kThreads, forward_shared(s.dim), stream_of(launch)>>>(
          in.q, in.k, in.v, view_of(launch.out<T>(0), s.queries, s.heads, s.dim), launch.out<float>(1), nullptr,
          sizes_of(s));
      device::cuda::launched("attention");
    });
  });
}

std::size_t plain_attention_grad_workspace_cuda(const ir::KernelSpec& spec) { return spec.inputs[4].bytes(); }

std::shared_ptr<device::Kernel> prepare_plain_attention_grad_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    allow_shared(query_kernel<T>, query_shared(s.dim));
    allow_shared(key_kernel<T>, key_shared(s.dim));
    return make_kernel([s](const device::Launch& launch) {
      const cudaStream_t stream = stream_of(launch);
      const Operands<T> in(launch, s);
      auto* const delta = static_cast<float*>(launch.workspace);
      const auto o = view_of(launch.in<T>(3), s.queries, s.heads, s.dim);
      Backward<T> w{
          in.q, in.k, in.v,       view_of(launch.in<T>(5), s.queries, s.heads, s.dim), launch.in<float>(4), delta, {},
          {},   {},   sizes_of(s)};
      if (s.packed) {
        w.dq = part_of(launch.out<T>(0), 0, s.queries, s.heads, s.dim);
        w.dk = part_of(launch.out<T>(0), 1, s.queries, s.heads, s.dim);
        w.dv = part_of(launch.out<T>(0), 2, s.queries, s.heads, s.dim);
      } else {
        w.dq = view_of(launch.out<T>(0), s.queries, s.heads, s.dim);
        w.dk = view_of(launch.out<T>(1), s.keys, s.key_heads, s.dim);
        w.dv = view_of(launch.out<T>(2), s.keys, s.key_heads, s.dim);
      }
      const std::int64_t rows = s.batch * s.heads * s.queries;
      delta_kernel<T><<<blocks(pieces(rows * 32, 256)), 256, 0, stream>>>(o, w.d, delta, w.z, rows);
      query_kernel<T><<<grid_of(s.queries, s.heads, s.batch), kThreads, query_shared(s.dim), stream>>>(w);
      key_kernel<T><<<grid_of(s.keys, s.key_heads, s.batch), kThreads, key_shared(s.dim), stream>>>(w);
      device::cuda::launched("attention_grad");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_cached_attention_cuda(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, {{"causal", true}, {"scale", spec.attributes.real("scale")}});
  const std::int64_t room = spec.inputs[3].shape[2];
  return dispatch_native(spec.inputs[0].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    allow_shared(forward_kernel<T>, forward_shared(s.dim));
    return make_kernel([s, room](const device::Launch& launch) {
      const cudaStream_t stream = stream_of(launch);
      const Operands<T> in(launch, s);
      const auto* position = launch.in<std::int32_t>(5);
      const auto dim = static_cast<int>(s.dim);
      const std::int64_t n = s.batch * s.queries * s.key_heads * s.dim;
      const auto cache_of = [&](auto* data) {
        return View<std::remove_pointer_t<decltype(data)>>{data, s.key_heads * room * s.dim, s.dim, room * s.dim};
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
      forward_kernel<T><<<grid_of(s.queries, s.heads, s.batch), kThreads, forward_shared(s.dim), stream>>>(
          in.q, cache_of(const_cast<const T*>(launch.out<T>(1))), cache_of(const_cast<const T*>(launch.out<T>(2))),
          view_of(launch.out<T>(0), s.queries, s.heads, s.dim), nullptr, position, sizes_of(s));
      device::cuda::launched("cached_attention");
    });
  });
}

bool supports_plain_attention_cuda(const ir::KernelSpec& spec) { return spec.inputs[0].shape.back() <= kMostDim; }

}  // namespace trireme::ops
