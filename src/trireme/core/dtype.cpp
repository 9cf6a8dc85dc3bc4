#include "trireme/core/dtype.h"

#include <array>

#include "trireme/core/error.h"

namespace trireme {
namespace {

struct Entry {
  const char* name;
  std::size_t size;
};
constexpr std::array<Entry, 9> kTypes = {
    {{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"u8", 1}, {"u16", 2}, {"i32", 4}, {"i64", 8}}};

}  // namespace

std::size_t size_of(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].size; }

const char* name_of(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (text == kTypes[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

void not_a_compute_type(DType dtype) { fail("{} is not a compute type (f32, bf16, f16)", name_of(dtype)); }

Float16::Float16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    bits = sign | 0x7e00U;
  } else if (magnitude >= 0x477ff000U) {  // rounds past 65504
    bits = sign | 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // subnormal: let the FPU round at the right bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  } else {
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
  }
}

Float16::operator float() const {
  const auto sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float value = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -value : value;
}

}  // namespace trireme
