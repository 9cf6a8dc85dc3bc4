#include <array>
#include <bit>
#include <cstring>

#include "trireme/ops/compress/take_largest.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

// Orders magnitudes, with NaN above all.
std::uint32_t key_of(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU; }

// The count-th largest key, found digit by digit from the top, and how many of the keys equal to it are among them.
struct Threshold {
  std::uint32_t key = 0;
  std::int64_t equals = 0;
};
Threshold threshold(const float* v, std::int64_t n, std::int64_t count) {
  constexpr std::array<int, 3> kShifts = {21, 10, 0};
  constexpr std::array<int, 3> kBits = {10, 11, 10};
  Threshold t;
  std::uint32_t known = 0;  // the bits of the key that are settled
  std::int64_t left = count;
  for (std::size_t digit = 0; digit < kShifts.size(); ++digit) {
    std::array<std::int64_t, 2048> histogram{};
    const std::uint32_t mask = (1U << kBits[digit]) - 1;
    for (std::int64_t i = 0; i < n; ++i)
      if (const std::uint32_t key = key_of(v[i]); (key & known) == t.key) ++histogram[key >> kShifts[digit] & mask];
    std::uint32_t d = mask;
    while (histogram[d] < left) left -= histogram[d--];
    t.key |= d << kShifts[digit];
    known |= mask << kShifts[digit];
  }
  t.equals = left;
  return t;
}

}  // namespace

std::shared_ptr<device::Kernel> prepare_take_largest_cpu(const ir::KernelSpec& spec) {
  const auto decay = static_cast<float>(spec.attributes.real("decay"));
  const std::int64_t count = spec.attributes.integer("count");
  const bool mask = spec.attributes.boolean("mask");
  const std::int64_t n = spec.inputs[0].elements();
  const TakenLayout layout(n, count);
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const simd::Vec weight = simd::set(launch.inputs[3] == nullptr ? 1.0F : *launch.in<float>(3));
      const bool waits = launch.inputs[2] != nullptr;
      float* velocity = launch.out<float>(1);
      float* waiting = waits ? launch.out<float>(2) : velocity;
      launch.pool->ranges(n, simd::kBlock, [&](std::int64_t begin, std::int64_t end) {
        simd::map(
            end - begin, velocity + begin,
            [&](simd::Vec x, simd::Vec u) { return simd::hn::MulAdd(simd::set(decay), u, weight * x); },
            launch.in<T>(0) + begin, launch.in<float>(1) + begin);
        if (waits)
          simd::map(
              end - begin, waiting + begin, [](simd::Vec u, simd::Vec v) { return u + v; },
              static_cast<const float*>(velocity) + begin, launch.in<float>(2) + begin);
      });
      Threshold t = threshold(waiting, n, count);
      auto* taken = launch.out<std::uint8_t>(0);
      std::memset(taken, 0, static_cast<std::size_t>(layout.values));
      std::memset(taken + layout.bytes - 4, 0, 4);
      std::int64_t k = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t key = key_of(waiting[i]);
        if (key < t.key || (key == t.key && t.equals-- <= 0)) continue;
        std::int32_t held = 0;
        std::uint8_t* counter = taken + i / TakenLayout::kSegment * 4;
        std::memcpy(&held, counter, sizeof held);
        ++held;
        std::memcpy(counter, &held, sizeof held);
        std::memcpy(taken + layout.values + 4 * k, &waiting[i], sizeof(float));
        const auto index = static_cast<std::uint16_t>(i % TakenLayout::kSegment);
        std::memcpy(taken + layout.indices + 2 * k, &index, sizeof index);
        ++k;
        if (waits) waiting[i] = 0;
        if (waits && mask) velocity[i] = 0;
      }
    });
  });
}

std::shared_ptr<device::Kernel> prepare_add_taken_cpu(const ir::KernelSpec& spec) {
  const std::int64_t n = spec.outputs[0].elements();
  const TakenLayout layout(n, spec.attributes.integer("count"));
  return make_kernel([=, parts = spec.inputs[0].shape[0]](const device::Launch& launch) {
    auto* y = launch.out<float>(0);
    std::memset(y, 0, static_cast<std::size_t>(n) * sizeof(float));
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::uint8_t* taken = launch.in<std::uint8_t>(0) + p * layout.bytes;
      std::int64_t k = 0;
      for (std::int64_t s = 0; s < layout.segments; ++s) {
        std::int32_t held = 0;
        std::memcpy(&held, taken + 4 * s, sizeof held);
        for (const std::int64_t end = k + held; k < end; ++k) {
          float value = 0;
          std::uint16_t index = 0;
          std::memcpy(&value, taken + layout.values + 4 * k, sizeof value);
          std::memcpy(&index, taken + layout.indices + 2 * k, sizeof index);
          y[s * TakenLayout::kSegment + index] += value;
        }
      }
    }
  });
}

}  // namespace trireme::ops
