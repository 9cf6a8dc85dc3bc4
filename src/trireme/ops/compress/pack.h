#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

// Tensors in fewer bytes, cut in equal parts that can go different ways.
namespace trireme::ops {

// pack(x, carry? f32, divisor? f32[]) code="bf16"|"int8"|"sign" block=256 parts=1
//   → packed u8[parts,bytes] [, rest f32 of carry's shape, where carry is given]
//
//   a = x / divisor + carry;  packed is a in a code;  rest = a − what unpack gives
//
// The elements, in order, are cut in `parts` parts of equally many (rounded up to 8); missing ones are zero. Within a
// part every `block` elements share a scale:
//   bf16   rounded to nearest, ties to even; no scales
//   int8   scale = max|a| / 127;  a / scale rounded to nearest, ties to even
//   sign   the largest element of a block is sent apart, so that the scale fits the others: it is their mean|a|; one
//   bit
//          per element: 1 where a < 0. Both magnitudes are rounded to a byte (see ByteFloat); a block has at most 128
//          elements. A part ends behind its last element that is not zero, and is zero beyond: what is missing stays
//          missing.
// A block with an element that is not finite comes back without a finite element (sign, int8) or with that one (bf16).
// x is f32, bf16 or f16; carry has as many elements. The same bits for any number of threads.
ir::OpDef pack_def();

// unpack(packed u8[parts,bytes], factor? f32[]) code block shape=[…] dtype="f32" sum=false → y of that type
//
// What was packed, times factor: the parts one behind the other, as many elements as the shape has; or, with `sum`, the
// sum over the parts, each of which then has as many elements as the shape (a multiple of 8).
ir::OpDef unpack_def();

// A magnitude in a byte: 6 bits of exponent and 2 of fraction, from 2⁻⁴⁴ to 2¹⁹, to the nearest. 0 is 0, and so is what
// is smaller than all; 255 is no number.
struct ByteFloat {
  static std::uint8_t encode(float magnitude);
  static float decode(std::uint8_t code);
};

// How a part is laid out.
struct PackLayout {
  enum class Code { bf16, int8, sign };
  PackLayout(const std::string& code, std::int64_t elements, std::int64_t parts, std::int64_t block);

  Code code;
  std::int64_t block;
  std::int64_t chunk;   // elements of a part
  std::int64_t blocks;  // of a part
  std::int64_t scales;  // where they begin: f32; for sign bytes, behind the number of elements
  std::int64_t apart;   // sign: where the largest of each block begin. 16 bits: index, sign, magnitude
  std::int64_t codes;   // where they begin
  std::int64_t bytes;   // of a part; a multiple of 4
};

std::shared_ptr<device::Kernel> prepare_pack_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_unpack_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
