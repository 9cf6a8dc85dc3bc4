#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/ops/compress/pack.h"
#include "trireme/ops/define.h"
#include "trireme/ops/simd.h"

namespace trireme::ops {
namespace {

using Code = PackLayout::Code;
constexpr std::int64_t kLargestBlock = 4096;
constexpr std::int64_t kSums = 8;  // partial sums of a mean: lanes, whatever the machine's vectors

template <class T>
T read(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void write(std::uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// a[i] = x[i] / divisor + carry[i]
template <class T>
void gather(float* a, const T* x, const float* carry, float inverse, std::int64_t n) {
  if (carry == nullptr)
    simd::map(
        n, a, [&](simd::Vec v) { return v * simd::set(inverse); }, x);
  else
    simd::map(
        n, a, [&](simd::Vec v, simd::Vec c) { return v * simd::set(inverse) + c; }, x, carry);
}

double sum_of_magnitudes(const float* a, std::int64_t n) {
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::int64_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(std::abs(a[i + k]));
  for (std::int64_t k = 0; i + k < n; ++k) sums[k] += static_cast<double>(std::abs(a[i + k]));
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// NaN where any element is not finite.
float largest_magnitude(const float* a, std::int64_t n) {
  simd::Vec most = simd::zero();
  simd::Vec wrong = simd::zero();
  simd::for_vectors(n, [&](std::int64_t i, std::int64_t count) {
    const simd::Vec v = simd::load_n(a + i, count);
    most = simd::hn::Max(most, simd::hn::Abs(v));
    wrong = simd::hn::MulAdd(v, simd::zero(), wrong);
  });
  return simd::sum(wrong) == 0.0F ? simd::max(most) : std::numeric_limits<float>::quiet_NaN();
}

// The signs of n elements out of `room`; the others are zero.
void encode_signs(const float* a, std::uint8_t* codes, std::int64_t n, std::int64_t room) {
  std::memset(codes, 0, static_cast<std::size_t>((room + 7) / 8));
  for (std::int64_t i = 0; i < n; i += 8) {
    std::uint32_t bits = 0;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(8, n - i); ++k) bits |= (a[i + k] < 0 ? 1U : 0U) << k;
    codes[i / 8] = static_cast<std::uint8_t>(bits);
  }
}

// The largest of a block, in 16 bits: its magnitude, its sign, its index.
struct Apart {
  std::int64_t index = 0;
  float value = 0;

  static std::uint16_t encode(std::int64_t index, float value, std::uint8_t magnitude) {
    return static_cast<std::uint16_t>(magnitude | (value < 0 ? 256U : 0U) | static_cast<std::uint32_t>(index) << 9U);
  }
  static Apart decode(std::uint16_t code) {
    const float magnitude = ByteFloat::decode(static_cast<std::uint8_t>(code & 255U));
    return {code >> 9U, (code & 256U) != 0 ? -magnitude : magnitude};
  }
};

void encode_sign(const float* a, std::uint8_t* codes, std::uint8_t* scale, std::uint8_t* apart, std::int64_t n,
                 std::int64_t room) {
  encode_signs(a, codes, n, room);
  std::int64_t at = 0;
  for (std::int64_t i = 1; i < n; ++i)
    if (std::abs(a[i]) > std::abs(a[at])) at = i;
  const float largest = n == 0 ? 0.0F : a[at];
  const double others = sum_of_magnitudes(a, n) - static_cast<double>(std::abs(largest));
  *scale = ByteFloat::encode(n < 2 ? std::abs(largest) : static_cast<float>(others / static_cast<double>(n - 1)));
  // Where one is no number, none is.
  constexpr std::uint8_t kNoNumber = 255;
  write(apart, Apart::encode(at, largest, *scale == kNoNumber ? kNoNumber : ByteFloat::encode(std::abs(largest))));
}

float encode_int8(const float* a, std::uint8_t* codes, std::int64_t n) {
  const float most = largest_magnitude(a, n);
  const float scale = most / 127.0F;
  // A scale that is not a normal number cannot be divided by: what is that small stays behind.
  const bool usable = scale >= std::numeric_limits<float>::min();
  const float inverse = usable ? 127.0F / most : 0.0F;
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] = usable ? static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyintf(a[i] * inverse))) : 0;
  return usable || std::isnan(most) ? scale : 0.0F;
}

void encode_bf16(const float* a, std::uint8_t* codes, std::int64_t n) {
  simd::map(
      n, reinterpret_cast<BFloat16*>(codes), [](simd::Vec v) { return v; }, a);
}

// y[i] (+)= element i of a block
template <bool kAdd>
void decode(Code code, const std::uint8_t* codes, float scale, const Apart& apart, float* y, std::int64_t n) {
  const auto put = [&](std::int64_t i, float value) { y[i] = kAdd ? y[i] + value : value; };
  switch (code) {
    case Code::sign:
      if (n > 0) {
        const float before = y[apart.index];
        for (std::int64_t i = 0; i < n; ++i) put(i, (codes[i / 8] >> (i % 8) & 1) != 0 ? -scale : scale);
        y[apart.index] = kAdd ? before + apart.value : apart.value;
      }
      break;
    case Code::int8:
      for (std::int64_t i = 0; i < n; ++i) put(i, static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale);
      break;
    case Code::bf16:
      if (kAdd)
        simd::map(
            n, y, [](simd::Vec v, simd::Vec c) { return v + c; }, static_cast<const float*>(y),
            reinterpret_cast<const BFloat16*>(codes));
      else
        simd::map(
            n, y, [](simd::Vec c) { return c; }, reinterpret_cast<const BFloat16*>(codes));
      break;
  }
}

std::int64_t code_offset(const PackLayout& l, std::int64_t element) {
  return l.codes + (l.code == Code::bf16 ? 2 * element : l.code == Code::int8 ? element : element / 8);
}

// Elements of a part that are there: for sign, what it says itself.
std::int64_t held(const PackLayout& l, const std::uint8_t* part) {
  return l.code == Code::sign ? read<std::int32_t>(part) : l.chunk;
}

template <bool kAdd>
void decode_block(const PackLayout& l, const std::uint8_t* part, std::int64_t first, std::int64_t n, float* y) {
  const std::int64_t there = std::clamp<std::int64_t>(held(l, part) - first, 0, n);
  const std::int64_t block = first / l.block;
  const float scale = l.code == Code::bf16   ? 0.0F
                      : l.code == Code::int8 ? read<float>(part + l.scales + block * 4)
                                             : ByteFloat::decode(part[l.scales + block]);
  const Apart apart = l.code == Code::sign ? Apart::decode(read<std::uint16_t>(part + l.apart + 2 * block)) : Apart{};
  decode<kAdd>(l.code, part + code_offset(l, first), scale, apart, y, there);
  if (!kAdd) std::fill(y + there, y + n, 0.0F);
}

// A tensor of n elements, in parts.
template <class T>
struct Packing {
  PackLayout layout;
  std::int64_t n;
  std::int64_t parts;

  // Elements of part p that are in the tensor.
  std::int64_t extent(std::int64_t p) const { return std::clamp<std::int64_t>(n - p * layout.chunk, 0, layout.chunk); }

  void operator()(const device::Launch& launch) const {
    const auto* x = launch.in<T>(0);
    const auto* carry = launch.in<float>(1);
    const float inverse = launch.inputs[2] == nullptr ? 1.0F : 1.0F / *launch.in<float>(2);
    float* rest = launch.outputs.size() > 1 ? launch.out<float>(1) : nullptr;
    const auto part = [&](std::int64_t p) { return launch.out<std::uint8_t>(0) + p * layout.bytes; };
    for (std::int64_t p = 0; p < parts; ++p) {
      // What lies beyond the end of the tensor, and padding.
      const std::int64_t clear = extent(p) < layout.chunk ? layout.bytes : std::min<std::int64_t>(layout.bytes, 4);
      std::memset(part(p) + layout.bytes - clear, 0, static_cast<std::size_t>(clear));
      if (layout.code != Code::sign) continue;
      std::memset(part(p) + layout.scales + layout.blocks, 0,
                  static_cast<std::size_t>(layout.apart - layout.scales - layout.blocks));
      write(part(p), static_cast<std::int32_t>(last_kept(x, carry, p)));
    }
    launch.pool->ranges(parts * layout.blocks, std::max<std::int64_t>(1, simd::kBlock / layout.block),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t b = begin; b < end; ++b)
                            one_block(x, carry, inverse, rest, part(b / layout.blocks), b / layout.blocks,
                                      b % layout.blocks * layout.block);
                        });
  }

  // The end of what is not zero in part p.
  std::int64_t last_kept(const T* x, const float* carry, std::int64_t p) const {
    const std::int64_t at = p * layout.chunk;
    std::int64_t end = extent(p);
    while (end > 0 && static_cast<float>(x[at + end - 1]) == 0 && (carry == nullptr || carry[at + end - 1] == 0)) --end;
    return end;
  }

  void one_block(const T* x, const float* carry, float inverse, float* rest, std::uint8_t* part, std::int64_t p,
                 std::int64_t first) const {
    const std::int64_t there = std::clamp<std::int64_t>(extent(p) - first, 0, layout.block);
    if (there == 0) return;
    const std::int64_t at = p * layout.chunk + first;
    alignas(64) float a[kLargestBlock];
    gather(a, x + at, carry == nullptr ? nullptr : carry + at, inverse, there);
    std::uint8_t* codes = part + code_offset(layout, first);
    if (layout.code == Code::bf16)
      encode_bf16(a, codes, there);
    else if (layout.code == Code::int8)
      write(part + layout.scales + first / layout.block * 4, encode_int8(a, codes, there));
    else
      encode_sign(a, codes, part + layout.scales + first / layout.block, part + layout.apart + first / layout.block * 2,
                  std::clamp<std::int64_t>(held(layout, part) - first, 0, there), there);
    if (rest == nullptr) return;
    alignas(64) float back[kLargestBlock];
    decode_block<false>(layout, part, first, there, back);
    simd::map(
        there, rest + at, [](simd::Vec v, simd::Vec b) { return v - b; }, static_cast<const float*>(a),
        static_cast<const float*>(back));
  }
};

}  // namespace

std::shared_ptr<device::Kernel> prepare_pack_cpu(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  return dispatch_compute(spec.inputs[0].dtype, [&]<class T>(T) {
    const std::int64_t n = spec.inputs[0].elements();
    return make_kernel(
        Packing<T>{PackLayout(a.text("code"), n, a.integer("parts"), a.integer("block")), n, a.integer("parts")});
  });
}

std::shared_ptr<device::Kernel> prepare_unpack_cpu(const ir::KernelSpec& spec) {
  const ir::Attributes& a = spec.attributes;
  const std::int64_t n = spec.outputs[0].elements();
  const std::int64_t parts = spec.inputs[0].shape[0];
  const bool sum = a.boolean("sum");
  const PackLayout layout(a.text("code"), n, sum ? 1 : parts, a.integer("block"));
  return dispatch_compute(spec.outputs[0].dtype, [&]<class T>(T) {
    return make_kernel([=](const device::Launch& launch) {
      const auto* packed = launch.in<std::uint8_t>(0);
      const float factor = launch.inputs[1] == nullptr ? 1.0F : *launch.in<float>(1);
      launch.pool->ranges((sum ? 1 : parts) * layout.blocks, std::max<std::int64_t>(1, simd::kBlock / layout.block),
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t b = begin; b < end; ++b) {
                              const std::int64_t first = b % layout.blocks * layout.block;
                              const std::int64_t at = b / layout.blocks * layout.chunk + first;
                              const std::int64_t there =
                                  std::clamp<std::int64_t>(std::min(n - at, layout.chunk - first), 0, layout.block);
                              if (there == 0) continue;
                              alignas(64) float y[kLargestBlock];
                              decode_block<false>(layout, packed + b / layout.blocks * layout.bytes, first, there, y);
                              if (sum)
                                for (std::int64_t p = 1; p < parts; ++p)
                                  decode_block<true>(layout, packed + p * layout.bytes, first, there, y);
                              simd::map(
                                  there, launch.out<T>(0) + at, [&](simd::Vec v) { return v * simd::set(factor); },
                                  static_cast<const float*>(y));
                            }
                          });
    });
  });
}

}  // namespace trireme::ops
