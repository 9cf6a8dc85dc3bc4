#pragma once
#include <trireme/export.h>

#include <bit>
#include <cstdint>

namespace trireme {

// Storage types of the two 16-bit formats. They only convert; arithmetic is done in f32.
// Conversion rounds to nearest even and keeps NaN a NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U)
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40U);
    else
      bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

struct TRIREME_API Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

}  // namespace trireme
