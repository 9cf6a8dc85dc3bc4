#include "trireme/io/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "trireme/core/dtype.h"
#include "trireme/core/error.h"

namespace trireme::io {
namespace {

constexpr std::size_t kSmall = 32;   // elements of a block of q8_0 and q4_0
constexpr std::size_t kSuper = 256;  // of q4_k
constexpr std::size_t kScales = 12;  // bytes of its scales

struct Row {
  GgmlType type;
  const char* name;
  std::int64_t elements;
  std::size_t bytes;
};
constexpr std::array<Row, 6> kBlockTypes = {{{GgmlType::f32, "f32", 1, 4},
                                             {GgmlType::f16, "f16", 1, 2},
                                             {GgmlType::bf16, "bf16", 1, 2},
                                             {GgmlType::q8_0, "q8_0", kSmall, 2 + kSmall},
                                             {GgmlType::q4_0, "q4_0", kSmall, 2 + kSmall / 2},
                                             {GgmlType::q4_k, "q4_k", kSuper, 4 + kScales + kSuper / 2}}};

const Row& row_of(GgmlType type) {
  return *std::find_if(kBlockTypes.begin(), kBlockTypes.end(), [&](const Row& row) { return row.type == type; });
}

void put_half(std::byte* out, float value) {
  const Float16 half(value);
  std::memcpy(out, &half, sizeof half);
}

float get_half(const std::byte* in) {
  Float16 half;
  std::memcpy(&half, in, sizeof half);
  return static_cast<float>(half);
}

std::byte byte_of(int value) { return static_cast<std::byte>(static_cast<std::uint8_t>(value)); }
int low(std::byte b) { return static_cast<int>(b) & 15; }
int high(std::byte b) { return static_cast<int>(b) >> 4; }

void encode_q8_0(const float* x, std::byte* out) {
  float largest = 0;
  for (std::size_t i = 0; i < kSmall; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127.0F;
  const float inverse = d == 0 ? 0.0F : 1.0F / d;
  put_half(out, d);
  for (std::size_t i = 0; i < kSmall; ++i) out[2 + i] = byte_of(static_cast<int>(std::round(x[i] * inverse)));
}

void decode_q8_0(const std::byte* in, float* x) {
  const float d = get_half(in);
  for (std::size_t i = 0; i < kSmall; ++i) x[i] = static_cast<float>(static_cast<std::int8_t>(in[2 + i])) * d;
}

void encode_q4_0(const float* x, std::byte* out) {
  float extreme = 0;
  for (std::size_t i = 0; i < kSmall; ++i)
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  const float d = extreme / -8.0F;
  const float inverse = d == 0 ? 0.0F : 1.0F / d;
  put_half(out, d);
  const auto code = [&](std::size_t i) { return std::min(15, static_cast<int>(x[i] * inverse + 8.5F)); };
  for (std::size_t i = 0; i < kSmall / 2; ++i) out[2 + i] = byte_of(code(i) | code(i + kSmall / 2) << 4);
}

void decode_q4_0(const std::byte* in, float* x) {
  const float d = get_half(in);
  for (std::size_t i = 0; i < kSmall / 2; ++i) {
    x[i] = static_cast<float>(low(in[2 + i]) - 8) * d;
    x[i + kSmall / 2] = static_cast<float>(high(in[2 + i]) - 8) * d;
  }
}

// The eight scales and minima of a superblock, six bits each: the first four as they are, the upper two bits of the
// others above them.
using Eight = std::array<int, 8>;

void put_scales(const Eight& s, const Eight& m, std::byte* out) {
  for (std::size_t j = 0; j < 4; ++j) {
    out[j] = byte_of(s[j] | (s[j + 4] >> 4) << 6);
    out[j + 4] = byte_of(m[j] | (m[j + 4] >> 4) << 6);
    out[j + 8] = byte_of((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
  }
}

void get_scales(const std::byte* in, Eight& s, Eight& m) {
  const auto at = [&](std::size_t i) { return static_cast<int>(in[i]); };
  for (std::size_t j = 0; j < 4; ++j) {
    s[j] = at(j) & 63;
    m[j] = at(j + 4) & 63;
    s[j + 4] = (at(j + 8) & 15) | (at(j) >> 6) << 4;
    m[j + 4] = at(j + 8) >> 4 | (at(j + 4) >> 6) << 4;
  }
}

// Two blocks of 32 share 32 bytes: the first has the low halves.
void encode_q4_k(const float* x, std::byte* out) {
  std::array<float, 8> scale{}, least{};
  for (std::size_t b = 0; b < 8; ++b) {
    const auto [from, to] = std::minmax_element(x + b * kSmall, x + (b + 1) * kSmall);
    least[b] = std::max(0.0F, -*from);
    scale[b] = (std::max(0.0F, *to) + least[b]) / 15.0F;
  }
  put_half(out, *std::max_element(scale.begin(), scale.end()) / 63.0F);
  put_half(out + 2, *std::max_element(least.begin(), least.end()) / 63.0F);
  const float d = get_half(out), dmin = get_half(out + 2);
  Eight s{}, m{};
  for (std::size_t b = 0; b < 8; ++b) {
    s[b] = d > 0 ? std::clamp(static_cast<int>(std::nearbyint(scale[b] / d)), 0, 63) : 0;
    m[b] = dmin > 0 ? std::clamp(static_cast<int>(std::nearbyint(least[b] / dmin)), 0, 63) : 0;
  }
  put_scales(s, m, out + 4);
  const auto code = [&](std::size_t b, std::size_t i) {
    const float step = d * static_cast<float>(s[b]);
    if (step == 0) return 0;
    const float value = (x[b * kSmall + i] + dmin * static_cast<float>(m[b])) / step;
    return std::clamp(static_cast<int>(std::nearbyint(value)), 0, 15);
  };
  for (std::size_t pair = 0; pair < 4; ++pair)
    for (std::size_t i = 0; i < kSmall; ++i)
      out[4 + kScales + pair * kSmall + i] = byte_of(code(2 * pair, i) | code(2 * pair + 1, i) << 4);
}

void decode_q4_k(const std::byte* in, float* x) {
  const float d = get_half(in), dmin = get_half(in + 2);
  Eight s{}, m{};
  get_scales(in + 4, s, m);
  const auto value = [&](std::size_t b, int code) {
    return d * static_cast<float>(s[b]) * static_cast<float>(code) - dmin * static_cast<float>(m[b]);
  };
  for (std::size_t pair = 0; pair < 4; ++pair)
    for (std::size_t i = 0; i < kSmall; ++i) {
      const std::byte both = in[4 + kScales + pair * kSmall + i];
      x[2 * pair * kSmall + i] = value(2 * pair, low(both));
      x[(2 * pair + 1) * kSmall + i] = value(2 * pair + 1, high(both));
    }
}

template <class T>
void narrow(std::span<const float> values, std::byte* out) {
  for (const float v : values) {
    const T narrowed(v);
    if (std::isfinite(v) && !std::isfinite(static_cast<float>(narrowed)))
      fail("{} does not fit 16 bits; --type f32 has room for it", v);
    std::memcpy(out, &narrowed, sizeof narrowed);
    out += sizeof narrowed;
  }
}

template <class T>
void widen(const std::byte* in, std::span<float> out) {
  for (float& v : out) {
    T stored;
    std::memcpy(&stored, in, sizeof stored);
    v = static_cast<float>(stored);
    in += sizeof stored;
  }
}

}  // namespace

const char* name_of(GgmlType type) { return row_of(type).name; }

std::optional<GgmlType> parse_ggml_type(std::string_view name) {
  for (const Row& row : kBlockTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::optional<GgmlType> known_ggml_type(std::uint32_t number) {
  for (const Row& row : kBlockTypes)
    if (static_cast<std::uint32_t>(row.type) == number) return row.type;
  return std::nullopt;
}

std::int64_t block_elements(GgmlType type) { return row_of(type).elements; }
std::size_t block_bytes(GgmlType type) { return row_of(type).bytes; }
std::size_t ggml_bytes(GgmlType type, std::int64_t elements) {
  return static_cast<std::size_t>(elements / block_elements(type)) * block_bytes(type);
}

void encode_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out) {
  const auto each = [&](auto encode) {
    const auto elements = static_cast<std::size_t>(block_elements(type));
    for (std::size_t b = 0; b * elements < values.size(); ++b)
      encode(values.data() + b * elements, out.data() + b * block_bytes(type));
  };
  switch (type) {
    case GgmlType::f32: std::memcpy(out.data(), values.data(), values.size_bytes()); return;
    case GgmlType::f16: return narrow<Float16>(values, out.data());
    case GgmlType::bf16: return narrow<BFloat16>(values, out.data());
    case GgmlType::q8_0: return each(encode_q8_0);
    case GgmlType::q4_0: return each(encode_q4_0);
    case GgmlType::q4_k: return each(encode_q4_k);
  }
}

void decode_blocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto each = [&](auto decode) {
    const auto elements = static_cast<std::size_t>(block_elements(type));
    for (std::size_t b = 0; b * elements < out.size(); ++b)
      decode(blocks.data() + b * block_bytes(type), out.data() + b * elements);
  };
  switch (type) {
    case GgmlType::f32: std::memcpy(out.data(), blocks.data(), out.size_bytes()); return;
    case GgmlType::f16: return widen<Float16>(blocks.data(), out);
    case GgmlType::bf16: return widen<BFloat16>(blocks.data(), out);
    case GgmlType::q8_0: return each(decode_q8_0);
    case GgmlType::q4_0: return each(decode_q4_0);
    case GgmlType::q4_k: return each(decode_q4_k);
  }
}

}  // namespace trireme::io
