#pragma once
#include <array>
#include <cstddef>

#include "trireme/ops/attention/attention_forward.h"
#include "trireme/ops/quantize/code_vectors.h"

// A few queries over the keys and values of a head that lie row behind row, in any type that vectors are loaded from:
// a compute type, or signed bytes, whose scales are applied to the scores and to the weights.
namespace trireme::ops::attend {

// Up to so many new rows are worth reading the keys once for each of them: blocks of queries would be nearly empty.
inline constexpr std::int64_t kFewQueries = 8;

// One query over the keys of its head: what a worker needs in addition to its operands.
struct QueryBuffers {
  float *q, *scores;
  std::size_t floats;

  QueryBuffers(float* base, std::int64_t dim, std::int64_t rows) {
    Scratch scratch(base);
    q = scratch.take(padded(dim));
    scores = scratch.take(padded(rows));
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
inline float softmax(float* scores, std::int64_t count) {
  std::fill(scores + count, scores + padded(count), -1e30F);
  simd::Vec top = simd::set(-1e30F);
  for (std::int64_t j = 0; j < count; j += kLanes) top = simd::hn::Max(top, simd::load(scores + j));
  const simd::Vec maximum = simd::hn::MaxOfLanes(simd::kTag, top);
  simd::Vec sum = simd::zero();
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const simd::Vec p = exp2(simd::load(scores + j) - maximum);
    simd::store(p, scores + j);
    sum = sum + p;
  }
  return simd::sum(sum);
}

// out = factor · Σ weights[j] · row j of `values`, a few vectors of the row at a time.
template <class T, class Out>
void mix_values(const float* weights, const T* values, std::int64_t count, std::int64_t dim, float factor, Out* out) {
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

// Rows of a head that lie one behind another, as they are; and what each of them is to be multiplied by, where they
// have scales of their own.
template <class T>
const T* rows_of(const Heads<const T>& heads, std::int64_t batch, std::int64_t head) {
  return heads.at(batch, 0, head);
}
template <class T>
void scale_rows(const Heads<const T>&, std::int64_t, std::int64_t, std::int64_t, float*) {}

// Each query by itself, over the keys that it sees. `Kept` is how keys and values are kept: Heads, or another type
// with rows_of and scale_rows in its own namespace. `workspace` has QueryBuffers of `room` rows for each worker.
template <class T, class Kept>
void each_query(ThreadPool& pool, float* workspace, const AttentionShape& s, std::int64_t room,
                const Heads<const T>& queries, const Kept& keys, const Kept& values, const Heads<T>& out) {
  const std::size_t floats = QueryBuffers(nullptr, s.dim, room).floats;
  pool.run_with_worker(s.batch * s.heads * s.queries, [&](std::int64_t task, int worker) {
    const std::int64_t query = task % s.queries, head = task / s.queries % s.heads, batch = task / s.queries / s.heads;
    const std::int64_t key_head = head / (s.heads / s.key_heads);
    const QueryBuffers w(workspace + static_cast<std::size_t>(worker) * floats, s.dim, room);
    const std::int64_t seen = keys_seen(s, query, 1);
    pack(queries.at(batch, query, head), 0, 1, 1, s.dim, s.scale * kLog2e, w.q);
    score_keys(w.q, rows_of(keys, batch, key_head), seen, s.dim, w.scores);
    scale_rows(keys, batch, key_head, seen, w.scores);
    const float sum = softmax(w.scores, seen);
    scale_rows(values, batch, key_head, seen, w.scores);
    mix_values(w.scores, rows_of(values, batch, key_head), seen, s.dim, 1.0F / sum, out.at(batch, query, head));
  });
}

}  // namespace trireme::ops::attend
