#pragma once
#include "trireme/ops/attention/attention_block.h"

// The forward pass, for operands addressed by strides: shared by the kernels that differ in where keys and values lie.
namespace trireme::ops::attend {

using simd::kLanes;

// What one worker needs for a block of queries and the block of keys it is reading.
struct ForwardBuffers {
  float *q, *q_transposed, *k, *v, *scores, *out, *maximum, *sum, *rescale;
  std::size_t floats;

  ForwardBuffers(float* base, std::int64_t dim) {
    Scratch scratch(base);
    const std::int64_t block = kBlock * padded(dim);
    for (float** piece : {&q, &q_transposed, &k, &v, &out}) *piece = scratch.take(block);
    scores = scratch.take(kBlock * kBlock);
    for (float** piece : {&maximum, &sum, &rescale}) *piece = scratch.take(kBlock);
    floats = scratch.used();
  }
};

// Turns the scores of `keys` keys into exp(score − maximum), with the running maximum and sum of each query brought up
// to date; `rescale` is what earlier results have to be multiplied by.
template <bool kMasked>
void softmax_block(const ForwardBuffers& w, std::int64_t keys, const Visible& seen) {
  namespace hn = simd::hn;
  const simd::Vec hidden = simd::set(-1e30F);
  simd::Vec maximum[kQueryVectors], sum[kQueryVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kQueryVectors; ++v) maximum[v] = simd::load(w.maximum + v * kLanes);
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < kQueryVectors; ++v) {
      simd::Vec x = simd::load(w.scores + j * kBlock + v * kLanes);
      if constexpr (kMasked) x = hn::IfThenElse(sees(j, seen, v), x, hidden);
      maximum[v] = hn::Max(maximum[v], x);
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kQueryVectors; ++v) {
    const simd::Vec factor = exp2(simd::load(w.maximum + v * kLanes) - maximum[v]);
    simd::store(maximum[v], w.maximum + v * kLanes);
    simd::store(factor, w.rescale + v * kLanes);
    sum[v] = factor * simd::load(w.sum + v * kLanes);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < kQueryVectors; ++v) {
      float* score = w.scores + j * kBlock + v * kLanes;
      simd::Vec p = exp2(simd::load(score) - maximum[v]);
      if constexpr (kMasked) p = hn::IfThenElseZero(sees(j, seen, v), p);
      simd::store(p, score);
      sum[v] = sum[v] + p;
    }
  }
#pragma GCC unroll 16
  for (int v = 0; v < kQueryVectors; ++v) simd::store(sum[v], w.sum + v * kLanes);
}

// A block of rows of a head in f32: what Forward asks of its keys and values.
template <class T>
void pack_rows(const Heads<const T>& from, std::int64_t batch, std::int64_t row, std::int64_t head, std::int64_t rows,
               std::int64_t dim, float* dst) {
  pack(from.at(batch, row, head), from.row, rows, rows, dim, 1.0F, dst);
}

// o and, unless null, lse of s.queries queries over s.keys keys; `starts` as attention has it, or null. `Rows` are keys
// and values, however they are kept: pack_rows gives a block of them.
template <class T, class Rows = Heads<const T>>
class Forward {
 public:
  explicit Forward(const AttentionShape& shape) : s_(shape) {}

  void run(ThreadPool& pool, void* workspace, const Heads<const T>& queries, const Rows& keys, const Rows& values,
           const Heads<T>& out, float* lse, const std::int32_t* starts = nullptr) const {
    const std::int64_t blocks = blocks_of(s_.queries);
    const std::size_t floats = ForwardBuffers(nullptr, s_.dim).floats;
    pool.run_with_worker(s_.batch * s_.heads * blocks, [&](std::int64_t task, int worker) {
      const std::int64_t block = blocks - 1 - task % blocks;  // the longest first
      const std::int64_t head = task / blocks % s_.heads, batch = task / blocks / s_.heads;
      const ForwardBuffers w(static_cast<float*>(workspace) + static_cast<std::size_t>(worker) * floats, s_.dim);
      const std::int64_t first = block * kBlock;
      query_block(w, queries, keys, values, out, lse, starts == nullptr ? nullptr : starts + batch * s_.queries + first,
                  batch, head, first);
    });
  }

 private:
  void query_block(const ForwardBuffers& w, const Heads<const T>& queries, const Rows& keys, const Rows& values,
                   const Heads<T>& out, float* lse, const std::int32_t* starts, std::int64_t batch, std::int64_t head,
                   std::int64_t first) const {
    const std::int64_t n = std::min(kBlock, s_.queries - first);
    const std::int64_t width = padded(s_.dim);
    const std::int64_t key_head = head / (s_.heads / s_.key_heads);
    pack(queries.at(batch, first, head), queries.row, n, kBlock, s_.dim, s_.scale * kLog2e, w.q);
    block::transpose(w.q, width, kBlock, width, 1.0F, w.q_transposed, kBlock);
    std::fill_n(w.out, kBlock * width, 0.0F);
    std::fill_n(w.maximum, kBlock, -1e30F);
    std::fill_n(w.sum, kBlock, 0.0F);

    const std::int64_t end = keys_seen(s_, first, n);
    const std::int64_t first_seen = first_key(starts);
    alignas(64) float hidden[kBlock];
    for (std::int64_t key = first_seen; key < end; key += kBlock) {
      const std::int64_t m = std::min(kBlock, end - key);
      pack_rows(keys, batch, key, key_head, m, s_.dim, w.k);
      pack_rows(values, batch, key, key_head, m, s_.dim, w.v);
      const Visible seen = visible(s_, first, key, m, starts, n, hidden);
      block::multiply<block::A::plain, block::C::set>(
          w.k, width, w.q_transposed, kBlock, w.scores, kBlock, m, kBlock,
          [&](std::int64_t begin, std::int64_t) { return seen.scores(begin, s_.dim); });
      if (seen.masked)
        softmax_block<true>(w, m, seen);
      else
        softmax_block<false>(w, m, seen);
      if (key > first_seen) rescale(w, n, width);
      block::multiply<block::A::transposed, block::C::add>(
          w.scores, kBlock, w.v, width, w.out, width, n, width,
          [&](std::int64_t, std::int64_t stop) { return seen.over_keys(stop, m); });
    }

    for (std::int64_t i = 0; i < n; ++i) {
      unpack(w.out + i * width, 1, s_.dim, 1.0F / w.sum[i], out.at(batch, first + i, head), out.row);
      if (lse != nullptr)
        lse[(batch * s_.heads + head) * s_.queries + first + i] = w.maximum[i] * kLn2 + std::log(w.sum[i]);
    }
  }

  static void rescale(const ForwardBuffers& w, std::int64_t rows, std::int64_t width) {
    for (std::int64_t i = 0; i < rows; ++i) {
      if (w.rescale[i] == 1.0F) continue;
      const simd::Vec factor = simd::set(w.rescale[i]);
      for (std::int64_t c = 0; c < width; c += kLanes)
        simd::store(factor * simd::load(w.out + i * width + c), w.out + i * width + c);
    }
  }

  AttentionShape s_;
};

}  // namespace trireme::ops::attend
