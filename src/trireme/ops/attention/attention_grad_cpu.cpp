#include "trireme/ops/attention/attention_block.h"

namespace trireme::ops {
namespace {

using attend::kBlock;
using attend::kQueryVectors;
using attend::Visible;
using simd::kLanes;

// Keys and values gather gradients from every query. f32 outputs of whole vectors are summed in place; the others in
// f32 scratch of their own.
template <class T>
bool sums_in_place(const AttentionShape& s) {
  return std::is_same_v<T, float> && s.dim % kLanes == 0;
}

struct Buffers {
  float *q, *q_transposed, *d_out, *d_out_transposed, *k, *v, *p, *ds, *dq, *lse, *delta, *dk, *dv;
  std::size_t floats;

  Buffers(float* base, const AttentionShape& s, bool in_place) {
    attend::Scratch scratch(base);
    const std::int64_t width = attend::padded(s.dim);
    for (float** piece : {&q, &q_transposed, &d_out, &d_out_transposed, &k, &v, &dq})
      *piece = scratch.take(kBlock * width);
    for (float** piece : {&p, &ds}) *piece = scratch.take(kBlock * kBlock);
    for (float** piece : {&lse, &delta}) *piece = scratch.take(kBlock);
    for (float** piece : {&dk, &dv}) *piece = in_place ? nullptr : scratch.take(s.keys * width);
    floats = scratch.used();
  }
};

// From scores in `p` and dP in `ds`: p = exp(score − lse), ds = p · (dP − delta).
template <bool kMasked>
void softmax_block(const Buffers& w, std::int64_t keys, const Visible& visible) {
  simd::Vec lse[kQueryVectors], delta[kQueryVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kQueryVectors; ++v) {
    lse[v] = simd::load(w.lse + v * kLanes);
    delta[v] = simd::load(w.delta + v * kLanes);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < kQueryVectors; ++v) {
      const std::int64_t at = j * kBlock + v * kLanes;
      simd::Vec p = attend::exp2(simd::load(w.p + at) - lse[v]);
      simd::Vec ds = p * (simd::load(w.ds + at) - delta[v]);
      if constexpr (kMasked) {
        const auto seen = attend::sees(j, visible, v);
        p = simd::hn::IfThenElseZero(seen, p);
        ds = simd::hn::IfThenElseZero(seen, ds);
      }
      simd::store(p, w.p + at);
      simd::store(ds, w.ds + at);
    }
  }
}

template <class T>
class AttentionGradKernel : public device::Kernel {
 public:
  explicit AttentionGradKernel(const AttentionShape& shape) : s_(shape) {}

  // One task per batch row and key head: a key's gradient is summed by one worker, in the order of heads and queries.
  void launch(const device::Launch& launch) override {
    Operands t;
    const auto in = [&](std::size_t i) { return launch.in<T>(i); };
    const auto out = [&](std::size_t i) { return launch.out<T>(i); };
    if (s_.packed) {
      Heads<const T>* const parts[] = {&t.q, &t.k, &t.v};
      Heads<T>* const grads[] = {&t.dq, &t.dk, &t.dv};
      for (int i = 0; i < 3; ++i) {
        *parts[i] = packed_part(in(0), i, s_.queries, s_.heads, s_.dim);
        *grads[i] = packed_part(out(0), i, s_.queries, s_.heads, s_.dim);
      }
    } else {
      t.q = heads_of(in(0), s_.queries, s_.heads, s_.dim);
      t.k = heads_of(in(1), s_.keys, s_.key_heads, s_.dim);
      t.v = heads_of(in(2), s_.keys, s_.key_heads, s_.dim);
      t.dq = heads_of(out(0), s_.queries, s_.heads, s_.dim);
      t.dk = heads_of(out(1), s_.keys, s_.key_heads, s_.dim);
      t.dv = heads_of(out(2), s_.keys, s_.key_heads, s_.dim);
    }
    t.o = heads_of(in(3), s_.queries, s_.heads, s_.dim);
    t.d_out = heads_of(in(5), s_.queries, s_.heads, s_.dim);
    t.lse = launch.in<float>(4);
    t.starts = starts_in(launch, kStartsOfGrad);
    const bool in_place = sums_in_place<T>(s_);
    const std::size_t floats = Buffers(nullptr, s_, in_place).floats;
    launch.pool->run_with_worker(s_.batch * s_.key_heads, [&](std::int64_t task, int worker) {
      const Buffers w(static_cast<float*>(launch.workspace) + static_cast<std::size_t>(worker) * floats, s_, in_place);
      key_head(w, t, task / s_.key_heads, task % s_.key_heads);
    });
  }

 private:
  struct Operands {
    Heads<const T> q, k, v, o, d_out;
    const float* lse;
    const std::int32_t* starts;
    Heads<T> dq, dk, dv;
  };
  // Where a key head's gradients are summed.
  struct Sums {
    float *dk, *dv;
    std::int64_t stride;
  };

  void key_head(const Buffers& w, const Operands& t, std::int64_t batch, std::int64_t key_head) const {
    const std::int64_t width = attend::padded(s_.dim), group = s_.heads / s_.key_heads;
    Sums sums{w.dk, w.dv, width};
    if constexpr (std::is_same_v<T, float>) {
      if (sums_in_place<T>(s_)) sums = {t.dk.at(batch, 0, key_head), t.dv.at(batch, 0, key_head), t.dk.row};
    }
    for (std::int64_t j = 0; j < s_.keys; ++j) {
      std::fill_n(sums.dk + j * sums.stride, width, 0.0F);
      std::fill_n(sums.dv + j * sums.stride, width, 0.0F);
    }
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
      for (std::int64_t first = 0; first < s_.queries; first += kBlock) query_block(w, t, sums, batch, head, first);
    if (!sums_in_place<T>(s_)) {
      attend::unpack(sums.dk, s_.keys, s_.dim, 1.0F, t.dk.at(batch, 0, key_head), t.dk.row);
      attend::unpack(sums.dv, s_.keys, s_.dim, 1.0F, t.dv.at(batch, 0, key_head), t.dv.row);
    }
  }

  void load_queries(const Buffers& w, const Operands& t, std::int64_t batch, std::int64_t head, std::int64_t first,
                    std::int64_t n) const {
    const std::int64_t width = attend::padded(s_.dim);
    attend::pack(t.q.at(batch, first, head), t.q.row, n, kBlock, s_.dim, s_.scale, w.q);
    block::transpose(w.q, width, kBlock, width, attend::kLog2e, w.q_transposed, kBlock);
    attend::pack(t.d_out.at(batch, first, head), t.d_out.row, n, kBlock, s_.dim, 1.0F, w.d_out);
    block::transpose(w.d_out, width, kBlock, width, 1.0F, w.d_out_transposed, kBlock);
    const float* lse = t.lse + (batch * s_.heads + head) * s_.queries + first;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      // Queries past the end have all-zero rows: with these values they add nothing.
      w.lse[i] = i < n ? lse[i] * attend::kLog2e : 0.0F;
      w.delta[i] = i < n ? dot(w.d_out + i * width, t.o.at(batch, first + i, head)) : 0.0F;
    }
  }

  float dot(const float* a, const T* b) const {
    simd::Vec sum = simd::zero();
    simd::for_vectors(s_.dim, [&](std::int64_t i, std::int64_t n) {
      sum = simd::hn::MulAdd(simd::load(a + i), simd::load_n(b + i, n), sum);
    });
    return simd::sum(sum);
  }

  void query_block(const Buffers& w, const Operands& t, const Sums& sums, std::int64_t batch, std::int64_t head,
                   std::int64_t first) const {
    const std::int64_t n = std::min(kBlock, s_.queries - first);
    const std::int64_t width = attend::padded(s_.dim);
    const std::int64_t key_head = head / (s_.heads / s_.key_heads);
    load_queries(w, t, batch, head, first, n);
    std::fill_n(w.dq, kBlock * width, 0.0F);

    const std::int64_t end = attend::keys_seen(s_, first, n);
    const std::int32_t* const starts = t.starts == nullptr ? nullptr : t.starts + batch * s_.queries + first;
    alignas(64) float hidden[kBlock];
    for (std::int64_t key = attend::first_key(starts); key < end; key += kBlock) {
      const std::int64_t m = std::min(kBlock, end - key);
      attend::pack(t.k.at(batch, key, key_head), t.k.row, m, m, s_.dim, 1.0F, w.k);
      attend::pack(t.v.at(batch, key, key_head), t.v.row, m, m, s_.dim, 1.0F, w.v);
      const Visible visible = attend::visible(s_, first, key, m, starts, n, hidden);
      const auto scores = [&](std::int64_t begin, std::int64_t) { return visible.scores(begin, s_.dim); };
      const auto over_queries = [&](std::int64_t begin, std::int64_t) { return visible.over_queries(begin, n); };
      const auto over_keys = [&](std::int64_t, std::int64_t stop) { return visible.over_keys(stop, m); };
      using block::A, block::C, block::multiply;
      multiply<A::plain, C::set>(w.k, width, w.q_transposed, kBlock, w.p, kBlock, m, kBlock, scores);
      multiply<A::plain, C::set>(w.v, width, w.d_out_transposed, kBlock, w.ds, kBlock, m, kBlock, scores);
      if (visible.masked)
        softmax_block<true>(w, m, visible);
      else
        softmax_block<false>(w, m, visible);
      multiply<A::plain, C::add>(w.p, kBlock, w.d_out, width, sums.dv + key * sums.stride, sums.stride, m, width,
                                 over_queries);
      multiply<A::plain, C::add>(w.ds, kBlock, w.q, width, sums.dk + key * sums.stride, sums.stride, m, width,
                                 over_queries);
      multiply<A::transposed, C::add>(w.ds, kBlock, w.k, width, w.dq, width, n, width, over_keys);
    }
    attend::unpack(w.dq, n, s_.dim, s_.scale, t.dq.at(batch, first, head), t.dq.row);
  }

  AttentionShape s_;
};

}  // namespace

std::size_t attention_grad_workspace_cpu(const ir::KernelSpec& spec) {
  AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  // Vectors of any length divide what the longest divide.
  const bool in_place = spec.inputs[0].dtype == DType::f32 && s.dim % attend::kMaxLanes == 0;
  s.dim = attend::padded_max(s.dim);
  return static_cast<std::size_t>(spec.threads) * Buffers(nullptr, s, in_place).floats * sizeof(float);
}

std::shared_ptr<device::Kernel> prepare_attention_grad_cpu(const ir::KernelSpec& spec) {
  const AttentionShape s = attention_shape(spec.inputs, spec.attributes);
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<AttentionGradKernel<decltype(zero)>>(s);
  });
}

}  // namespace trireme::ops
