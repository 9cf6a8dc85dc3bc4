#include "trireme/ops/quantize/codes.h"

#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"

namespace trireme::ops {
namespace {

int highest(int bits) { return bits == 8 ? 127 : 7; }
int lowest(int bits) { return bits == 8 ? -127 : -8; }

// The byte and the shift of a 4-bit code.
std::pair<std::int64_t, int> place_of(std::int64_t column) {
  const std::int64_t in_block = column % kPackedCodes;
  constexpr std::int64_t kHalf = kPackedCodes / 2;
  return {column / kPackedCodes * kHalf + in_block % kHalf, in_block < kHalf ? 0 : 4};
}

}  // namespace

TensorType CodeFormat::codes(std::int64_t n, std::int64_t k) const {
  return {bits == 8 ? DType::i8 : DType::u8, {n, row_bytes(k)}};
}

TensorType CodeFormat::scales(std::int64_t n, std::int64_t k) const { return {DType::f32, {n, groups(k)}}; }

double CodeFormat::bits_per_element(std::int64_t k) const {
  return bits + 32.0 * static_cast<double>(groups(k)) / static_cast<double>(k);
}

std::string CodeFormat::problem(std::int64_t k) const {
  if (bits == 4 && k % kPackedCodes != 0)
    return fmt::format("rows of {} elements cannot be packed: 4 bits need a multiple of {}", k, kPackedCodes);
  if (group != 0 && k % group != 0) return fmt::format("groups of {} do not divide rows of {} elements", group, k);
  if (bits == 4 && group % kPackedCodes != 0)
    return fmt::format("groups of {} cannot be packed: 4 bits need a multiple of {}", group, kPackedCodes);
  return "";
}

std::string CodeFormat::str() const {
  return fmt::format("int{}{}", bits, group == 0 ? "" : fmt::format(":{}", group));
}

CodeFormat code_format(const ir::Attributes& attributes) {
  const CodeFormat format{static_cast<int>(attributes.integer("bits")), attributes.integer("group")};
  if (format.bits != 8 && format.bits != 4) fail("'bits' must be 8 or 4, got {}", format.bits);
  if (format.group < 0) fail("'group' must be at least 0, got {}", format.group);
  return format;
}

ir::Attributes code_attributes(const CodeFormat& format) {
  return {{"bits", std::int64_t{format.bits}}, {"group", format.group}};
}

float group_scale(const float* elements, std::int64_t count, int bits) {
  float extreme = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (std::abs(elements[i]) > std::abs(extreme)) extreme = elements[i];
  return bits == 8 ? std::abs(extreme) / 127.0F : extreme / -8.0F;
}

int nearest_code(float element, float scale, int bits) {
  if (scale == 0) return 0;
  const float code = std::nearbyintf(element / scale);
  return static_cast<int>(std::clamp(code, static_cast<float>(lowest(bits)), static_cast<float>(highest(bits))));
}

void store_code(std::byte* row, std::int64_t column, int code, int bits) {
  if (bits == 8) {
    row[column] = static_cast<std::byte>(static_cast<std::int8_t>(code));
    return;
  }
  const auto [at, shift] = place_of(column);
  const auto others = static_cast<unsigned>(row[at]) & (0xf0U >> shift);
  row[at] = static_cast<std::byte>(others | static_cast<unsigned>(code + 8) << shift);
}

int load_code(const std::byte* row, std::int64_t column, int bits) {
  if (bits == 8) return static_cast<std::int8_t>(row[column]);
  const auto [at, shift] = place_of(column);
  return static_cast<int>(static_cast<unsigned>(row[at]) >> shift & 0xfU) - 8;
}

void quantize_rows(const float* rows, std::int64_t n, std::int64_t k, const CodeFormat& format, std::byte* codes,
                   float* scales) {
  const std::int64_t group = format.group_of(k);
  for (std::int64_t i = 0; i < n; ++i) {
    const float* row = rows + i * k;
    std::byte* out = codes + i * format.row_bytes(k);
    for (std::int64_t g = 0; g < format.groups(k); ++g) {
      const float scale = group_scale(row + g * group, group, format.bits);
      *scales++ = scale;
      for (std::int64_t c = g * group; c < (g + 1) * group; ++c)
        store_code(out, c, nearest_code(row[c], scale, format.bits), format.bits);
    }
  }
}

void dequantize_rows(const std::byte* codes, const float* scales, std::int64_t n, std::int64_t k,
                     const CodeFormat& format, float* rows) {
  const std::int64_t group = format.group_of(k);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t c = 0; c < k; ++c)
      rows[i * k + c] = static_cast<float>(load_code(codes + i * format.row_bytes(k), c, format.bits)) *
                        scales[i * format.groups(k) + c / group];
}

}  // namespace trireme::ops
