#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/core/rng.h"
#include "trireme/ops/define.h"
#include "trireme/ops/random/cpu_kernels.h"
#include "trireme/ops/random/window.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_dropout_cpu(const ir::KernelSpec& spec) {
  const double p = spec.attributes.real("p");
  const auto factor = static_cast<float>(1 / (1 - p));
  // Kept where the top 24 bits of the word, as a number in [0, 1), reach p: the largest value that does not.
  const auto below = static_cast<std::int32_t>(std::ceil(p * 0x1p24)) - 1;
  const auto site = static_cast<std::uint64_t>(spec.attributes.integer("site"));
  const RandomWindow window(spec.attributes);
  const std::int64_t rows = spec.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : spec.inputs[0].elements() / rows;
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      namespace hn = simd::hn;
      constexpr hn::RebindToSigned<simd::Tag> integers;
      constexpr hn::RebindToUnsigned<simd::Tag> bits;
      constexpr std::int64_t kSpan = 1024;  // elements per draw of words; a multiple of 4
      if (width == 0) return;
      const auto* rng = launch.in<std::int64_t>(1);
      const RandomStream stream{static_cast<std::uint64_t>(rng[0]), site, static_cast<std::uint64_t>(rng[1])};
      std::array<std::int64_t, RandomWindow::kMaxShifts> places{};
      for (int s = 0; s < window.shifts(); ++s)
        places[static_cast<std::size_t>(s)] = *launch.in<std::int64_t>(2 + static_cast<std::size_t>(s));
      const std::int64_t spans = (width + kSpan - 1) / kSpan;
      const std::int64_t per_task = std::max<std::int64_t>(1, simd::kBlock / std::min(kSpan, width));
      launch.pool->ranges(rows * spans, per_task, [&](std::int64_t first, std::int64_t last) {
        alignas(64) std::uint32_t words[kSpan + 8];
        for (std::int64_t task = first; task < last; ++task) {
          const std::int64_t row = task / spans;
          const std::int64_t begin = task % spans * kSpan;
          const T* x = launch.in<T>(0) + row * width + begin;
          T* y = launch.out<T>(0) + row * width + begin;
          window.each_run(
              begin, std::min(kSpan, width - begin), places,
              [&](std::int64_t from, std::int64_t count, std::int64_t element) {
                // Words come in fours.
                const std::int64_t skipped = std::max<std::int64_t>(element, 0) % 4;
                const auto quads = static_cast<std::size_t>((skipped + count + 3) / 4);
                stream.fill(static_cast<std::uint64_t>(rng[2] + row),
                            static_cast<std::uint64_t>(std::max<std::int64_t>(element, 0) / 4), {words, quads * 4});
                simd::for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
                  const auto top = hn::BitCast(integers, hn::ShiftRight<8>(hn::LoadU(bits, words + skipped + i)));
                  const auto kept = hn::RebindMask(simd::kTag, hn::Gt(top, hn::Set(integers, below)));
                  const simd::Vec scaled = simd::load_n(x + from + i, lanes) * simd::set(factor);
                  simd::store_n(hn::IfThenElseZero(kept, scaled), y + from + i, lanes);
                });
              });
        }
      });
    });
  });
}

}  // namespace trireme::ops
