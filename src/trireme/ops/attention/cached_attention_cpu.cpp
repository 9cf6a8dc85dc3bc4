#include <cstring>

#include "trireme/ops/attention/cached_attention.h"
#include "trireme/ops/attention/few_queries.h"
#include "trireme/ops/define.h"

namespace trireme::ops {
namespace {

using attend::kFewQueries;
using attend::QueryBuffers;

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
      attend::each_query(*launch.pool, static_cast<float*>(launch.workspace), grown, room_, part(0), keys, values, out);
  }

  static std::size_t worker_floats(const AttentionShape& s, std::int64_t room) {
    return s.queries > kFewQueries ? attend::ForwardBuffers(nullptr, attend::padded_max(s.dim)).floats
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
