#include "trireme/ops/cuda/common.h"
#include "trireme/ops/embedding/cuda_kernels.h"

namespace trireme::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A token outside the vocabulary gives a row of NaN: the step is then not finite, and looking for the cause finds this
// tensor.
template <int N, class T>
__global__ void embedding_kernel(const std::int32_t* tokens, const T* table, T* y, std::int64_t vocab,
                                 std::int64_t width, bool masked) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t token = tokens[row];
  const bool valid = token >= 0 && token < vocab;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < width;
       c += static_cast<std::int64_t>(blockDim.x) * N) {
    Pack<T, N> pack;
    if (valid) {
      pack = load<N>(table + token * width + c);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) pack.v[j] = narrow<T>(masked && token < 0 ? 0.0F : nanf(""));
    }
    store<N>(y + row * width + c, pack);
  }
}

// A token outside the vocabulary stays outside any rank's rows, so that it is found.
__global__ void local_tokens_kernel(const std::int32_t* tokens, const std::int64_t* place, std::int32_t* y,
                                    std::int64_t vocab, std::int64_t rows, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const std::int64_t own = tokens[i] - *place * rows;
  const bool valid = tokens[i] >= 0 && tokens[i] < vocab;
  y[i] = !valid ? static_cast<std::int32_t>(rows) : own >= 0 && own < rows ? static_cast<std::int32_t>(own) : -1;
}

// The gradient sums rows of dy by token. Positions are first put in the order of their tokens, those of one token
// ascending, by a counting sort over chunks of positions: the result is the same bits every time. A token at more than
// kPart positions (a blank, an article) is summed in parts: where the order is cut every kPart positions.
constexpr int kChunk = 1024;
constexpr int kPart = 128;

struct TokenOrder {
  float* parts;          // [tokens / kPart][2][width]: of the tokens that a part begins and ends with
  std::int32_t* counts;  // [chunk][vocab]: of a token in a chunk, then of it in all chunks before
  std::int32_t* first;   // [vocab + 1]: where a token's positions begin
  std::int32_t* rank;    // [tokens]: of a position among those of its token in its chunk
  std::int32_t* order;   // [tokens]
  std::int32_t* sums;    // [vocab / kThreads]: positions of as many tokens

  TokenOrder(void* workspace, std::int64_t tokens, std::int64_t vocab, std::int64_t width)
      : parts(static_cast<float*>(workspace)),
        counts(reinterpret_cast<std::int32_t*>(parts + pieces(tokens, kPart) * 2 * width)),
        first(counts + pieces(tokens, kChunk) * vocab),
        rank(first + vocab + 1),
        order(rank + tokens),
        sums(order + tokens) {}
  static std::size_t bytes(std::int64_t tokens, std::int64_t vocab, std::int64_t width) {
    return static_cast<std::size_t>(pieces(tokens, kPart) * 2 * width) * sizeof(float) +
           static_cast<std::size_t>(pieces(tokens, kChunk) * vocab + vocab + 1 + 2 * tokens + pieces(vocab, kThreads)) *
               sizeof(std::int32_t);
  }
};

__global__ void rank_kernel(const std::int32_t* tokens, std::int64_t count, std::int64_t vocab, TokenOrder t) {
  __shared__ std::int32_t chunk[kChunk];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const int here = count - begin < kChunk ? static_cast<int>(count - begin) : kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < here; i += static_cast<int>(blockDim.x)) chunk[i] = tokens[begin + i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < here; i += static_cast<int>(blockDim.x)) {
    const std::int32_t token = chunk[i];
    int before = 0;
    for (int j = 0; j < i; ++j) before += chunk[j] == token ? 1 : 0;
    t.rank[begin + i] = before;
    if (token >= 0 && token < vocab) atomicAdd(t.counts + blockIdx.x * vocab + token, 1);
  }
}

// Counts become sums over the chunks before; `first` gets each token's total, `sums` those of a block's tokens.
__global__ void over_chunks_kernel(std::int64_t chunks, std::int64_t vocab, TokenOrder t) {
  __shared__ std::int32_t shared[32];
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  std::int32_t sum = 0;
  if (v < vocab) {
    constexpr int kAhead = 8;  // loads on their way at once
    for (std::int64_t c = 0; c < chunks; c += kAhead) {
      std::int32_t own[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) own[k] = c + k < chunks ? t.counts[(c + k) * vocab + v] : 0;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (c + k < chunks) t.counts[(c + k) * vocab + v] = sum;
        sum += own[k];
      }
    }
    t.first[v] = sum;
  }
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x == 0) t.sums[blockIdx.x] = sum;
}

// Totals become where each token begins.
__global__ void over_tokens_kernel(std::int64_t vocab, TokenOrder t) {
  __shared__ std::int32_t shared[32];
  __shared__ std::int32_t warps[kThreads / 32];
  std::int32_t before = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += kThreads) before += t.sums[b];
  before = block_reduce<Add>(before, shared);
  const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int32_t own = v < vocab ? t.first[v] : 0;
  std::int32_t sum = own;  // with those of the warp's tokens before
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::int32_t other = __shfl_up_sync(0xffffffffU, sum, offset);
    if (static_cast<int>(threadIdx.x % 32) >= offset) sum += other;
  }
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) before += warps[w];
  if (v < vocab) t.first[v] = before + sum - own;
  if (v == vocab - 1) t.first[vocab] = before + sum;
}

__global__ void order_kernel(const std::int32_t* tokens, std::int64_t count, std::int64_t vocab, TokenOrder t) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int32_t token = tokens[i];
  if (token < 0 || token >= vocab) return;
  t.order[t.first[token] + t.counts[i / kChunk * vocab + token] + t.rank[i]] = static_cast<std::int32_t>(i);
}

// Adds `row(p)`, a pointer, for p from begin to end.
template <int N, class Row>
__device__ void add_rows(float (&sum)[N], std::int32_t begin, std::int32_t end, Row row) {
  using T = std::remove_cvref_t<decltype(*row(0))>;
  constexpr int kAhead = 8;
  for (std::int32_t p = begin; p < end; p += kAhead) {
    Pack<T, N> rows[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (p + k < end) rows[k] = load<N>(row(p + k));
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (p + k < end)
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += wide(rows[k].v[j]);
  }
}

template <int N, class In>
__global__ void part_kernel(const std::int32_t* tokens, const In* dy, std::int64_t vocab, std::int64_t width,
                            TokenOrder t) {
  const int begin = static_cast<int>(blockIdx.x) * kPart;
  const int end = min(begin + kPart, t.first[vocab]);
  if (begin >= end) return;
  for (int which = 0; which < 2; ++which) {
    const std::int32_t token = tokens[t.order[which == 0 ? begin : end - 1]];
    const std::int32_t first = t.first[token], behind = t.first[token + 1];
    if (behind - first <= kPart || (which == 1 && first <= begin)) continue;
    for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < width;
         c += static_cast<std::int64_t>(blockDim.x) * N) {
      float sum[N] = {};
      add_rows(sum, max(first, begin), min(behind, end),
               [&](std::int32_t p) { return dy + static_cast<std::int64_t>(t.order[p]) * width + c; });
      Pack<float, N> result;
#pragma unroll
      for (int j = 0; j < N; ++j) result.v[j] = sum[j];
      store<N>(t.parts + (static_cast<std::int64_t>(blockIdx.x) * 2 + which) * width + c, result);
    }
  }
}

template <int N, class In, class Out>
__global__ void sum_kernel(const In* dy, Out* table, std::int64_t width, bool accumulate, TokenOrder t) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t begin = t.first[row];
  const std::int32_t end = t.first[row + 1];
  if (begin == end && accumulate) return;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < width;
       c += static_cast<std::int64_t>(blockDim.x) * N) {
    float sum[N];
    const Pack<Out, N> before = accumulate ? load<N>(table + row * width + c) : Pack<Out, N>{};
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = accumulate ? wide(before.v[j]) : 0.0F;
    if (end - begin <= kPart)
      add_rows(sum, begin, end, [&](std::int32_t p) { return dy + static_cast<std::int64_t>(t.order[p]) * width + c; });
    else
      add_rows(sum, begin / kPart, (end - 1) / kPart + 1, [&](std::int32_t part) {
        return t.parts + (static_cast<std::int64_t>(part) * 2 + (begin > part * kPart ? 1 : 0)) * width + c;
      });
    Pack<Out, N> result;
#pragma unroll
    for (int j = 0; j < N; ++j) result.v[j] = narrow<Out>(sum[j]);
    store<N>(table + row * width + c, result);
  }
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_embedding_cuda(const ir::KernelSpec& spec) {
  const std::int64_t tokens = spec.inputs[0].elements();
  const std::int64_t vocab = spec.inputs[1].shape[0], width = spec.inputs[1].shape[1];
  const bool masked = spec.attributes.boolean("masked");
  return dispatch_native(spec.inputs[1].dtype, [&]<class T>(T) -> std::shared_ptr<device::Kernel> {
    return make_kernel([=](const device::Launch& launch) {
      if (tokens == 0 || width == 0) return;
      const auto run = [&](auto kernel, int pack) {
        const auto threads = static_cast<unsigned>(std::clamp<std::int64_t>(pieces(width, 32 * pack) * 32, 32, 256));
        kernel<<<blocks(tokens), threads, 0, stream_of(launch)>>>(launch.in<std::int32_t>(0), launch.in<T>(1),
                                                                  launch.out<T>(0), vocab, width, masked);
      };
      const bool fits = width % kWidest<T> == 0 && aligned16(launch.inputs[1]) && aligned16(launch.outputs[0]);
      fits ? run(embedding_kernel<kWidest<T>, T>, kWidest<T>) : run(embedding_kernel<1, T>, 1);
      device::cuda::launched("embedding");
    });
  });
}

std::shared_ptr<device::Kernel> prepare_local_tokens_cuda(const ir::KernelSpec& spec) {
  const std::int64_t vocab = spec.attributes.integer("vocab"), rows = spec.attributes.integer("rows");
  return make_kernel([=, n = spec.inputs[0].elements()](const device::Launch& launch) {
    if (n == 0) return;
    local_tokens_kernel<<<blocks(pieces(n, kThreads)), kThreads, 0, stream_of(launch)>>>(
        launch.in<std::int32_t>(0), launch.in<std::int64_t>(1), launch.out<std::int32_t>(0), vocab, rows, n);
    device::cuda::launched("local_tokens");
  });
}

std::size_t embedding_grad_workspace_cuda(const ir::KernelSpec& spec) {
  return TokenOrder::bytes(spec.inputs[0].elements(), spec.outputs[0].shape[0], spec.outputs[0].shape[1]);
}

std::shared_ptr<device::Kernel> prepare_embedding_grad_cuda(const ir::KernelSpec& spec) {
  const std::int64_t tokens = spec.inputs[0].elements();
  const std::int64_t vocab = spec.outputs[0].shape[0], width = spec.outputs[0].shape[1];
  const bool accumulate = spec.accumulate;
  return dispatch_native(spec.inputs[1].dtype, [&]<class In>(In) {
    return dispatch_native(spec.outputs[0].dtype, [&]<class Out>(Out) -> std::shared_ptr<device::Kernel> {
      return make_kernel([=](const device::Launch& launch) {
        if (width == 0) return;
        const cudaStream_t stream = stream_of(launch);
        const TokenOrder order(launch.workspace, tokens, vocab, width);
        const auto* token = launch.in<std::int32_t>(0);
        const std::int64_t chunks = pieces(tokens, kChunk);
        TRI_CUDA(
            cudaMemsetAsync(order.counts, 0, static_cast<std::size_t>(chunks * vocab) * sizeof(std::int32_t), stream));
        if (tokens > 0) rank_kernel<<<blocks(chunks), 1024, 0, stream>>>(token, tokens, vocab, order);
        over_chunks_kernel<<<blocks(pieces(vocab, kThreads)), kThreads, 0, stream>>>(chunks, vocab, order);
        over_tokens_kernel<<<blocks(pieces(vocab, kThreads)), kThreads, 0, stream>>>(vocab, order);
        if (tokens > 0)
          order_kernel<<<blocks(pieces(tokens, kThreads)), kThreads, 0, stream>>>(token, tokens, vocab, order);
        const auto run = [&]<int N>(std::integral_constant<int, N>) {
          const auto threads = static_cast<unsigned>(std::clamp<std::int64_t>(pieces(width, 32 * N) * 32, 32, 256));
          const auto* dy = launch.in<In>(1);
          if (tokens > kPart)
            part_kernel<N><<<blocks(pieces(tokens, kPart)), threads, 0, stream>>>(token, dy, vocab, width, order);
          sum_kernel<N><<<blocks(vocab), threads, 0, stream>>>(dy, launch.out<Out>(0), width, accumulate, order);
        };
        const bool fits = width % 4 == 0 && aligned16(launch.inputs[1]) && aligned16(launch.outputs[0]);
        fits ? run(std::integral_constant<int, 4>{}) : run(std::integral_constant<int, 1>{});
        device::cuda::launched("embedding_grad");
      });
    });
  });
}

}  // namespace trireme::ops
