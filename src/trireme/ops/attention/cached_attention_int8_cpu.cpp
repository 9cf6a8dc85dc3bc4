#include <cstring>

#include "trireme/ops/attention/cached_attention_int8.h"
#include "trireme/ops/attention/few_queries.h"
#include "trireme/ops/define.h"

namespace trireme::ops {

// Rows of heads [batch, head, row, dim] in 8 bits.
template <class Code, class Scale>
struct CodeHeads {
  Code* codes = nullptr;
  Scale* scales = nullptr;
  std::int64_t heads = 0, rows = 0, dim = 0;

  std::int64_t place(std::int64_t b, std::int64_t row, std::int64_t head) const {
    return (b * heads + head) * rows + row;
  }
  Code* row(std::int64_t b, std::int64_t r, std::int64_t head) const { return codes + place(b, r, head) * dim; }
  Scale* scale(std::int64_t b, std::int64_t r, std::int64_t head) const { return scales + place(b, r, head); }
};
using KeptHeads = CodeHeads<const std::int8_t, const float>;

// What attend::Forward and attend::each_query ask of their keys and values; found by the type's own namespace.
static void pack_rows(const KeptHeads& from, std::int64_t batch, std::int64_t row, std::int64_t head, std::int64_t rows,
                      std::int64_t dim, float* dst) {
  const std::int64_t width = attend::padded(dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int8_t* codes = from.row(batch, row + r, head);
    const simd::Vec scale = simd::set(*from.scale(batch, row + r, head));
    simd::for_vectors(dim, [&](std::int64_t i, std::int64_t n) {
      simd::store(scale * simd::load_n(codes + i, n), dst + r * width + i);
    });
  }
}

static const std::int8_t* rows_of(const KeptHeads& heads, std::int64_t batch, std::int64_t head) {
  return heads.row(batch, 0, head);
}
static void scale_rows(const KeptHeads& heads, std::int64_t batch, std::int64_t head, std::int64_t rows,
                       float* scores) {
  simd::map(
      rows, scores, [](simd::Vec a, simd::Vec b) { return a * b; }, scores, heads.scale(batch, 0, head));
}

namespace {

// Codes of `dim` elements and their scale.
template <class T>
float keep_row(const T* x, std::int64_t dim, std::int8_t* codes) {
  namespace hn = simd::hn;
  simd::Vec most = simd::zero();
  simd::for_vectors(dim,
                    [&](std::int64_t i, std::int64_t n) { most = hn::Max(most, hn::Abs(simd::load_n(x + i, n))); });
  const float scale = simd::max(most) / 127.0F;
  // Of a row of zeros all codes are 0.
  const simd::Vec divisor = simd::set(scale > 0 ? scale : 1.0F);
  simd::for_vectors(dim, [&](std::int64_t i, std::int64_t n) {
    constexpr hn::Rebind<std::int8_t, simd::Tag> bytes;
    const auto whole = hn::ConvertTo(simd::detail::IntTag{}, hn::Round(simd::load_n(x + i, n) / divisor));
    std::int8_t few[static_cast<std::size_t>(simd::kLanes)];
    hn::StoreU(hn::DemoteTo(bytes, whole), bytes, few);
    std::memcpy(codes + i, few, static_cast<std::size_t>(n));
  });
  return scale;
}

template <class T>
class Int8CachedAttention : public device::Kernel {
 public:
  Int8CachedAttention(const AttentionShape& shape, std::int64_t room) : s_(shape), room_(room) {}

  void launch(const device::Launch& launch) override {
    const std::int64_t position = *launch.in<std::int32_t>(7);
    if (position < 0 || position + s_.queries > room_)
      fail("rows {} … {} do not fit a cache of {}", position, position + s_.queries - 1, room_);
    const auto part = [&](std::int64_t i) {
      return s_.packed ? packed_part(launch.in<T>(0), i, s_.queries, s_.heads, s_.dim)
                       : heads_of(launch.in<T>(static_cast<std::size_t>(i)), s_.queries,
                                  i == 0 ? s_.heads : s_.key_heads, s_.dim);
    };
    // Codes and scales of keys are outputs 1 and 2, those of values 3 and 4.
    for (const std::size_t i : {std::size_t{1}, std::size_t{3}}) {
      copy_elsewhere(launch, i, static_cast<std::size_t>(kept_rows() * s_.dim));
      copy_elsewhere(launch, i + 1, static_cast<std::size_t>(kept_rows()) * sizeof(float));
      append(*launch.pool, part(i == 1 ? 1 : 2),
             {launch.out<std::int8_t>(i), launch.out<float>(i + 1), s_.key_heads, room_, s_.dim}, position);
    }
    const auto kept = [&](std::size_t i) {
      return KeptHeads{launch.out<std::int8_t>(i), launch.out<float>(i + 1), s_.key_heads, room_, s_.dim};
    };
    AttentionShape grown = s_;
    grown.keys = position + s_.queries;
    const Heads<T> out = heads_of(launch.out<T>(0), s_.queries, s_.heads, s_.dim);
    if (s_.queries > attend::kFewQueries)
      attend::Forward<T, KeptHeads>(grown).run(*launch.pool, launch.workspace, part(0), kept(1), kept(3), out, nullptr);
    else
      attend::each_query(*launch.pool, static_cast<float*>(launch.workspace), grown, room_, part(0), kept(1), kept(3),
                         out);
  }

  static std::size_t worker_floats(const AttentionShape& s, std::int64_t room) {
    return s.queries > attend::kFewQueries ? attend::ForwardBuffers(nullptr, attend::padded_max(s.dim)).floats
                                           : attend::QueryBuffers(nullptr, s.dim, room).floats;
  }

 private:
  std::int64_t kept_rows() const { return s_.batch * s_.key_heads * room_; }

  // Where an output is not the input's own place.
  static void copy_elsewhere(const device::Launch& launch, std::size_t output, std::size_t bytes) {
    if (launch.out<std::byte>(output) != launch.inputs[output + 2])
      std::memcpy(launch.out<std::byte>(output), launch.inputs[output + 2], bytes);
  }

  void append(ThreadPool& pool, const Heads<const T>& rows, const CodeHeads<std::int8_t, float>& cache,
              std::int64_t position) const {
    constexpr std::int64_t kTogether = 32;
    pool.ranges(s_.batch * s_.key_heads * s_.queries, kTogether, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i % s_.queries, head = i / s_.queries % s_.key_heads,
                           batch = i / s_.queries / s_.key_heads;
        *cache.scale(batch, position + row, head) =
            keep_row(rows.at(batch, row, head), s_.dim, cache.row(batch, position + row, head));
      }
    });
  }

  AttentionShape s_;
  std::int64_t room_;
};

AttentionShape kept_shape(const ir::KernelSpec& spec) {
  return attention_shape(spec.inputs, {{"causal", true}, {"scale", spec.attributes.real("scale")}});
}

}  // namespace

std::size_t cached_attention_int8_workspace_cpu(const ir::KernelSpec& spec) {
  return static_cast<std::size_t>(spec.threads) * sizeof(float) *
         Int8CachedAttention<float>::worker_floats(kept_shape(spec), spec.inputs[3].shape[2]);
}

std::shared_ptr<device::Kernel> prepare_cached_attention_int8_cpu(const ir::KernelSpec& spec) {
  const AttentionShape s = kept_shape(spec);
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<Int8CachedAttention<decltype(zero)>>(s, spec.inputs[3].shape[2]);
  });
}

}  // namespace trireme::ops
