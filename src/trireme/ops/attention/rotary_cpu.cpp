#include <cmath>

#include "trireme/ops/attention/rotary.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

// A turn for each of the dim/2 frequencies, for several positions: [position][dim/2].
struct Turns {
  std::vector<float> cosine, sine;

  void resize(std::int64_t n) {
    cosine.resize(static_cast<std::size_t>(n));
    sine.resize(static_cast<std::size_t>(n));
  }
  void set(std::int64_t row, double position, const std::vector<double>& frequencies) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(row) * frequencies.size() + i;
      cosine[at] = static_cast<float>(std::cos(position * frequencies[i]));
      sine[at] = static_cast<float>(std::sin(position * frequencies[i]));
    }
  }
};

// Position p = 64·q + r turns by 64·q and then by r: two tables of s/64 and 64 rows stand for one of s rows, which
// every layer's kernel would otherwise hold.
constexpr std::int64_t kStep = 64;

template <class T>
class RotaryKernel : public device::Kernel {
 public:
  RotaryKernel(const Shape& shape, const ir::Attributes& attributes)
      : shape_(shape), frequencies_(rotary_frequencies(shape[3], attributes)), inverse_(attributes.boolean("inverse")) {
    const std::int64_t half = shape[3] / 2;
    fine_.resize(kStep * half);
    for (std::int64_t r = 0; r < kStep; ++r) fine_.set(r, static_cast<double>(r), frequencies_);
    coarse_.resize((shape[1] + kStep - 1) / kStep * half);
    start_at(0);
  }

  void launch(const device::Launch& launch) override {
    const T* x = launch.in<T>(0);
    T* y = launch.out<T>(0);
    const auto* offset = launch.in<std::int32_t>(1);
    if (const std::int64_t first = offset != nullptr ? *offset : 0; first != first_) start_at(first);
    const std::int64_t positions = shape_[1], width = shape_[2] * shape_[3];
    const std::int64_t rows = std::max<std::int64_t>(1, simd::kBlock / width);
    launch.pool->ranges(shape_[0] * positions, rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) turn(x + row * width, y + row * width, row % positions);
    });
  }

 private:
  void start_at(std::int64_t first) {
    first_ = first;
    for (std::int64_t q = 0; q * kStep < shape_[1]; ++q)
      coarse_.set(q, static_cast<double>(first + q * kStep), frequencies_);
  }

  // All heads of one position.
  void turn(const T* x, T* y, std::int64_t position) const {
    const std::int64_t half = shape_[3] / 2;
    const std::int64_t coarse = position / kStep * half, fine = position % kStep * half;
    simd::for_vectors(half, [&](std::int64_t i, std::int64_t n) {
      const simd::Vec c0 = simd::load_n(coarse_.cosine.data() + coarse + i, n);
      const simd::Vec s0 = simd::load_n(coarse_.sine.data() + coarse + i, n);
      const simd::Vec c1 = simd::load_n(fine_.cosine.data() + fine + i, n);
      const simd::Vec s1 = simd::load_n(fine_.sine.data() + fine + i, n);
      const simd::Vec cosine = c0 * c1 - s0 * s1;
      simd::Vec sine = s0 * c1 + c0 * s1;
      if (inverse_) sine = simd::hn::Neg(sine);
      for (std::int64_t at = i; at < shape_[2] * shape_[3]; at += shape_[3]) {
        const simd::Vec a = simd::load_n(x + at, n), b = simd::load_n(x + at + half, n);
        simd::store_n(a * cosine - b * sine, y + at, n);
        simd::store_n(b * cosine + a * sine, y + at + half, n);
      }
    });
  }

  Shape shape_;
  std::vector<double> frequencies_;
  bool inverse_;
  std::int64_t first_ = 0;  // position of row 0, for which `coarse_` was made
  Turns coarse_, fine_;
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_rotary_cpu(const ir::KernelSpec& spec) {
  return dispatch_compute(spec.inputs[0].dtype, [&](auto zero) -> std::shared_ptr<device::Kernel> {
    return std::make_shared<RotaryKernel<decltype(zero)>>(spec.inputs[0].shape, spec.attributes);
  });
}

}  // namespace trireme::ops
