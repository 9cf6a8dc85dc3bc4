#include <cmath>
#include <limits>

#include "trireme/ops/define.h"
#include "trireme/ops/quantize/quantize_int8.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

namespace hn = simd::hn;
using Integers = hn::RebindToSigned<simd::Tag>;
using Bytes = hn::Rebind<std::int8_t, simd::Tag>;

constexpr float kSmallest = 1e-30F;

void store_bytes(simd::Vec v, std::int8_t* to, std::int64_t n) {
  const auto bytes = hn::DemoteTo(Bytes{}, hn::NearestInt(v));
  if (n == simd::kLanes) return hn::StoreU(bytes, Bytes{}, to);
  alignas(64) std::int8_t buffer[static_cast<std::size_t>(simd::kLanes)];
  hn::Store(bytes, Bytes{}, buffer);
  std::memcpy(to, buffer, static_cast<std::size_t>(n));
}

simd::Vec load_bytes(const std::int8_t* from, std::int64_t n) {
  if (n == simd::kLanes) return hn::ConvertTo(simd::kTag, hn::PromoteTo(Integers{}, hn::LoadU(Bytes{}, from)));
  alignas(64) std::int8_t buffer[static_cast<std::size_t>(simd::kLanes)] = {};
  std::memcpy(buffer, from, static_cast<std::size_t>(n));
  return hn::ConvertTo(simd::kTag, hn::PromoteTo(Integers{}, hn::Load(Bytes{}, buffer)));
}

// x to q; gives the scale.
template <class T>
float quantize_block(const T* x, std::int8_t* q, std::int64_t n) {
  simd::Vec most = simd::zero();
  simd::Vec wrong = simd::zero();  // x·0 is 0 or not a number
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    const simd::Vec v = simd::load_n(x + i, count);
    most = hn::Max(most, hn::Abs(v));
    wrong = hn::MulAdd(v, simd::zero(), wrong);
  });
  const float largest = simd::max(most);
  const bool finite = simd::sum(wrong) == 0.0F;
  const float inverse = finite && largest >= kSmallest ? 127.0F / largest : 0.0F;
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    const simd::Vec v = inverse > 0 ? simd::load_n(x + i, count) : simd::zero();
    const simd::Vec exact = v * simd::set(inverse);
    const auto vanishes = hn::And(hn::Lt(hn::Abs(exact), simd::set(1.0F)), hn::Ne(v, simd::zero()));
    store_bytes(hn::IfThenElse(vanishes, hn::CopySignToAbs(simd::set(1.0F), v), exact), q + i, count);
  });
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return inverse == 0.0F ? 0.0F : largest / 127.0F;
}

template <class T>
void dequantize_block(const std::int8_t* q, float scale, T* x, std::int64_t n) {
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    simd::store_n(load_bytes(q + i, count) * simd::set(scale), x + i, count);
  });
}

// How a tensor is cut: rows of `width` elements, each with `blocks` scales.
struct Blocks {
  std::int64_t rows, width, block, blocks;

  Blocks(const TensorType& x, const ir::Attributes& attributes)
      : rows(x.elements() / x.shape.back()),
        width(x.shape.back()),
        block(attributes.integer("block")),
        blocks((width + block - 1) / block) {}

  // Calls f(first element, elements, index of the scale) for each block.
  template <class F>
  void run(ThreadPool& pool, F&& f) const {
    pool.ranges(rows * blocks, std::max<std::int64_t>(1, simd::kBlock / std::min(block, width)),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t b = begin; b < end; ++b) {
                    const std::int64_t at = b % blocks * block;
                    f(b / blocks * width + at, std::min(block, width - at), b);
                  }
                });
  }
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_quantize_int8_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([cut = Blocks(spec.inputs[0], spec.attributes)](const device::Launch& launch) {
      cut.run(*launch.pool, [&](std::int64_t at, std::int64_t n, std::int64_t scale) {
        launch.out<float>(1)[scale] = quantize_block(launch.in<T>(0) + at, launch.out<std::int8_t>(0) + at, n);
      });
    });
  });
}

std::shared_ptr<device::Kernel> prepare_dequantize_int8_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([cut = Blocks(spec.inputs[0], spec.attributes)](const device::Launch& launch) {
      cut.run(*launch.pool, [&](std::int64_t at, std::int64_t n, std::int64_t scale) {
        dequantize_block(launch.in<std::int8_t>(0) + at, launch.in<float>(1)[scale], launch.out<T>(0) + at, n);
      });
    });
  });
}

}  // namespace trireme::ops
