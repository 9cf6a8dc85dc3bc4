#include <array>
#include <cstring>

#include "trireme/ops/attention/attention_forward.h"
#include "trireme/ops/attention/cached_attention.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

using simd::kLanes;

// Up to so many new rows are worth reading the keys once for each of them: blocks of queries would be nearly empty.
constexpr std::int64_t kFewQueries = 8;

// One query over the keys of its head: what a worker needs in addition to its operands.
struct QueryBuffers {
  float *q, *scores;
  std::size_t floats;

  QueryBuffers(float* base, std::int64_t dim, std::int64_t rows) {
    attend::Scratch scratch(base);
    q = scratch.take(attend::padded(dim));
    scores = scratch.take(attend::padded(rows));
    floats = scratch.used();
  }
};

// scores[j] = q · row j of `keys`, several rows at once to hide the sums' latency.
template <class T>
void score_keys(const float* q, const T* keys, std::int64_t count, std::int64_t dim, float* scores) {
  constexpr std::size_t kTogether = 4;
  const auto rows = [&]<std::size_t N>(std::int64_t j, std::integral_constant<std::size_t, N>) {
    std::array<simd::Vec, N> sum;
    sum.fill(simd::zero());
    simd::for_vectors(dim, [&](std::int64_t c, std::int64_t n) {
      const simd::Vec left = simd::load(q + c);
      for (std::size_t i = 0; i < N; ++i)
        sum[i] = simd::hn::MulAdd(left, simd::load_n(keys + (j + static_cast<std::int64_t>(i)) * dim + c, n), sum[i]);
    });
    for (std::size_t i = 0; i < N; ++i) scores[j + static_cast<std::int64_t>(i)] = simd::sum(sum[i]);
  };
  std::int64_t j = 0;
  for (; j + static_cast<std::int64_t>(kTogether) <= count; j += kTogether)
    rows(j, std::integral_constant<std::size_t, kTogether>());
  for (; j < count; ++j) rows(j, std::integral_constant<std::size_t, 1>());
}

// Scores in units of log 2 to exp(score − maximum), zeros up to the next whole vector; gives their sum.
float softmax(float* scores, std::int64_t count) {
  std::fill(scores + count, scores + attend::padded(count), -1e30F);
  simd::Vec top = simd::set(-1e30F);
  for (std::int64_t j = 0; j < count; j += kLanes) top = simd::hn::Max(top, simd::load(scores + j));
  const simd::Vec maximum = simd::hn::MaxOfLanes(simd::kTag, top);
  simd::Vec sum = simd::zero();
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const simd::Vec p = attend::exp2(simd::load(scores + j) - maximum);
    simd::store(p, scores + j);
    sum = sum + p;
  }
  return simd::sum(sum);
}

// out = factor · Σ weights[j] · row j of `values`, a few vectors of the row at a time.
template <class T>
void mix_values(const float* weights, const T* values, std::int64_t count, std::int64_t dim, float factor, T* out) {
  constexpr std::int64_t kVectors = 4;
  for (std::int64_t first = 0; first < dim; first += kVectors * kLanes) {
    const std::int64_t width = std::min(kVectors * kLanes, dim - first);
    std::array<simd::Vec, kVectors> sum;
    sum.fill(simd::zero());
    for (std::int64_t j = 0; j < count; ++j) {
      const simd::Vec weight = simd::set(weights[j]);
      const T* row = values + j * dim + first;
      for (std::int64_t v = 0; v * kLanes < width; ++v)
        sum[static_cast<std::size_t>(v)] =
            simd::hn::MulAdd(weight, simd::load_n(row + v * kLanes, std::min(kLanes, width - v * kLanes)),
                             sum[static_cast<std::size_t>(v)]);
    }
    for (std::int64_t v = 0; v * kLanes < width; ++v)
      simd::store_n(simd::set(factor) * sum[static_cast<std::size_t>(v)], out + first + v * kLanes,
                    std::min(kLanes, width - v * kLanes));
  }
}

template <class T>
class CachedAttentionKernel : public device::Kernel {
 public:
  CachedAttentionKernel(const AttentionShape& shape, std::int64_t room) : s_(shape), room_(room) {}

  void launch(const device::Launch& launch) override {
    const std::int64_t position = *launch.in<std::int32_t>(5);
    if (position < 0 || position + s_.queries > room_)
      fail("rows {} … {} do not fit a cache of {}", position, position + s_.queries - 1, room_);
    const auto part = [&](std::int64_t i) {
      return s_.packed ? packed_part(launch.in<T>(0), i, s_.queries, s_.heads, s_.dim)
                       : heads_of(launch.in<T>(static_cast<std::size_t>(i)), s_.queries,
                                  i == 0 ? s_.heads : s_.key_heads, s_.dim);
    };
    for (std::size_t i : {std::size_t{1}, std::size_t{2}}) {
      T* cache = launch.out<T>(i);
      if (cache != launch.inputs[i + 2])
        std::memcpy(cache, launch.inputs[i + 2],
                    static_cast<std::size_t>(s_.batch * s_.key_heads * room_ * s_.dim) * sizeof(T));
      append(*launch.pool, part(static_cast<std::int64_t>(i)), kept(cache), position);
    }
    AttentionShape grown = s_;
    grown.keys = position + s_.queries;
    const Heads<const T> keys = kept<const T>(launch.out<T>(1)), values = kept<const T>(launch.out<T>(2));
    const Heads<T> out = heads_of(launch.out<T>(0), s_.queries, s_.heads, s_.dim);
    if (s_.queries > kFewQueries)
      attend::Forward<T>(grown).run(*launch.pool, launch.workspace, part(0), keys, values, out, nullptr);
    else
      each_query(launch, grown, part(0), keys, values, out);
  }

  static std::size_t worker_floats(const AttentionShape& s, std::int64_t room) {
    return s.queries > kFewQueries ? attend::ForwardBuffers(nullptr, s.dim).floats
                                   : QueryBuffers(nullptr, s.dim, room).floats;
  }

 private:
  template <class U = T>
  Heads<U> kept(U* cache) const {
    return {cache, s_.key_heads * room_ * s_.dim, s_.dim, room_ * s_.dim};
  }

  void append(ThreadPool& pool, const Heads<const T>& rows, const Heads<T>& cache, std::int64_t position) const {
    constexpr std::int64_t kTogether = 32;
    pool.ranges(s_.batch * s_.key_heads * s_.queries, kTogether, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i % s_.queries, head = i / s_.queries % s_.key_heads,
                           batch = i / s_.queries / s_.key_heads;
        std::memcpy(cache.at(batch, position + row, head), rows.at(batch, row, head),
                    static_cast<std::size_t>(s_.dim) * sizeof(T));
      }
    });
  }

  void each_query(const device::Launch& launch, const AttentionShape& s, const Heads<const T>& queries,
                  const Heads<const T>& keys, const Heads<const T>& values, const Heads<T>& out) const {
    const std::size_t floats = worker_floats(s, room_);
    launch.pool->run_with_worker(s.batch * s.heads * s.queries, [&](std::int64_t task, int worker) {
      const std::int64_t query = task % s.queries, head = task / s.queries % s.heads,
                         batch = task / s.queries / s.heads;
      const std::int64_t key_head = head / (s.heads / s.key_heads);
      const QueryBuffers w(static_cast<float*>(launch.workspace) + static_cast<std::size_t>(worker) * floats, s.dim,
                           room_);
      const std::int64_t seen = attend::keys_seen(s, query, 1);
      attend::pack(queries.at(batch, query, head), 0, 1, 1, s.dim, s.scale * attend::kLog2e, w.q);
      score_keys(w.q, keys.at(batch, 0, key_head), seen, s.dim, w.scores);
      const float sum = softmax(w.scores, seen);
      mix_values(w.scores, values.at(batch, 0, key_head), seen, s.dim, 1.0F / sum, out.at(batch, query, head));
    });
  }

  AttentionShape s_;
  std::int64_t room_;
};

AttentionShape new_rows(const ir::KernelSpec& spec) {
  return attention_shape(spec.inputs, {{"causal", true}, {"scale", spec.attributes.real("scale")}});
}

}  // namespace

std::size_t cached_attention_workspace_cpu(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.threads) * sizeof(float) *
         CachedAttentionKernel<float>::worker_floats(new_rows(spec), spec.inputs[3].shape[2]);
}

std::shared_ptr<device::Kernel> prepare_cached_attention_cpu(const ir::KernelSpec& spec) {
  const AttentionShape s = new_rows(spec);
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<CachedAttentionKernel<decltype(zero)>>(s, spec.inputs[3].shape[2]);
  });
}

}  // namespace trireme::ops
