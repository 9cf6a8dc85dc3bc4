#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "trireme/ir/op_def.h"

// Eight-bit floats and the ops that make them. Tensors of them are u8; which format it is, an attribute says.
//
//   e4m3    4 bits of exponent, 3 of fraction: up to 448, no infinity. For weights and activations.
//   e5m2    5 bits of exponent, 2 of fraction: up to 57344. For gradients, whose range is wider.
namespace trireme::ops {

struct Fp8Format {
  int fraction, bias;
  float most;

  // To the nearest, ties to even; beyond the largest number that number; NaN is 0x7f.
  std::uint8_t encode(float x) const;
  // The numbers that the 256 codes stand for.
  std::array<float, 256> values() const;
};
inline constexpr Fp8Format kE4M3{3, 7, 448.0F}, kE5M2{2, 15, 57344.0F};
// Throws on another name.
const Fp8Format& fp8_format(const std::string& name);

// fp8_scale(x) {format} → scale f32[]: what makes the largest |x| the largest number of the format. NaN where an
// element is.
ir::OpDef fp8_scale_def();

// quantize_fp8(x, scale) {format, split, form} → codes u8 of x / scale
//
//   split    dimensions [0, split) of x are the rows, the others the columns; -1: all but the last, and the last
//   form     rows: codes as x lies; columns: transposed, columns first; both: two outputs, in this order
ir::OpDef quantize_fp8_def();

std::shared_ptr<device::Kernel> prepare_fp8_scale_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantize_fp8_cpu(const ir::KernelSpec& spec);

// A tensor as the matrix that quantize_fp8 sees.
struct Fp8Matrix {
  std::int64_t rows = 0, columns = 0;
  int split = 0;
  bool as_rows = false, as_columns = false;  // the forms asked for
  Fp8Matrix(const TensorType& x, const ir::Attributes& attributes);
};

inline constexpr float kSmallestFp8 = 1e-30F;  // what is smaller throughout counts as this

}  // namespace trireme::ops
