#include "trireme/io/packed_zeros.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace trireme::io {
namespace {

std::size_t mask_bytes(std::size_t elements) { return (elements + 7) / 8; }

}  // namespace

std::optional<std::vector<std::byte>> pack_zeros(std::span<const float> values) {
  const auto there = values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), 0.0F));
  const std::size_t bytes = mask_bytes(values.size()) + there * sizeof(float);
  if (bytes >= values.size() * sizeof(float)) return std::nullopt;
  std::vector<std::byte> packed(bytes, std::byte{0});
  std::byte* next = packed.data() + mask_bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    packed[i / 8] |= std::byte{1} << (i % 8);
    std::memcpy(next, &values[i], sizeof(float));
    next += sizeof(float);
  }
  return packed;
}

bool unpack_zeros(std::span<const std::byte> packed, std::span<float> values) {
  const std::size_t mask = mask_bytes(values.size());
  if (packed.size() < mask) return false;
  std::size_t there = 0;
  for (const std::byte b : packed.first(mask))
    there += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(b)));
  if (packed.size() != mask + there * sizeof(float)) return false;
  if (values.size() % 8 != 0 && (std::to_integer<unsigned>(packed[mask - 1]) >> (values.size() % 8)) != 0) return false;
  const std::byte* next = packed.data() + mask;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    if (((packed[i / 8] >> (i % 8)) & std::byte{1}) == std::byte{0}) continue;
    std::memcpy(&values[i], next, sizeof(float));
    next += sizeof(float);
  }
  return true;
}

}  // namespace trireme::io
