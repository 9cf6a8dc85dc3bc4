#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"

namespace trireme::ops {

// How a matrix is written in few bits: each of its n rows of k elements as codes, with one scale for every `group`
// elements along the row, or one for all of it (group 0).
//
//   bits 8   element = code · scale          codes i8 [n,k], -127 … 127
//   bits 4   element = (code - 8) · scale    codes u8 [n,k/2], 0 … 15; k is a multiple of 32
//
// Two 4-bit codes share a byte: in every 32 elements, byte j has element j in its low half and element j + 16 in its
// high half, so that a vector of bytes gives two vectors of consecutive elements. Scales are f32 [n, k/group].
struct CodeFormat {
  int bits = 8;
  std::int64_t group = 0;

  std::int64_t group_of(std::int64_t k) const { return group == 0 ? k : group; }
  std::int64_t groups(std::int64_t k) const { return k / group_of(k); }
  std::int64_t row_bytes(std::int64_t k) const { return bits == 8 ? k : k / 2; }
  TensorType codes(std::int64_t n, std::int64_t k) const;
  TensorType scales(std::int64_t n, std::int64_t k) const;
  // Bits of storage for each element, scales included.
  double bits_per_element(std::int64_t k) const;
  // Why rows of k elements cannot have this format; "": they can.
  std::string problem(std::int64_t k) const;
  std::string str() const;  // "int8", "int4:64"
  friend bool operator==(const CodeFormat&, const CodeFormat&) = default;
};

inline constexpr std::int64_t kPackedCodes = 32;  // elements of 4 bits that are packed together

// Attributes of the ops that read codes: bits, group. Throws on values that are no format.
CodeFormat code_format(const ir::Attributes& attributes);
ir::Attributes code_attributes(const CodeFormat& format);

// The scale that a group of elements gets when each is rounded to its nearest code. 8 bits: the largest magnitude over
// 127. 4 bits: the element of the largest magnitude becomes code 0, which is -8, so all sixteen codes are used; the
// scale has the opposite sign of that element. A group of zeros gets the scale 0.
float group_scale(const float* elements, std::int64_t count, int bits);
// The nearest code of an element, as a signed number: -127 … 127, -8 … 7.
int nearest_code(float element, float scale, int bits);

// Codes of one row. `store_code` takes signed numbers.
void store_code(std::byte* row, std::int64_t column, int code, int bits);
int load_code(const std::byte* row, std::int64_t column, int bits);

// Rounds n rows to nearest; `codes` and `scales` have the bytes of the format's types.
void quantize_rows(const float* rows, std::int64_t n, std::int64_t k, const CodeFormat& format, std::byte* codes,
                   float* scales);
void dequantize_rows(const std::byte* codes, const float* scales, std::int64_t n, std::int64_t k,
                     const CodeFormat& format, float* rows);

}  // namespace trireme::ops
