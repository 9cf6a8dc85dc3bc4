#pragma once
#include "trireme/ir/op_def.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::ops {

// matmul_fp8(a, b, a_scale, b_scale) → y: a · bᵀ of eight-bit floats times both scales. Sums are f32; a Hopper GPU
// keeps 14 bits of those of a few dozen products.
//
// Both are stored with the contracted dimensions last: a has a_split free ones, b has b_split; y has those of a, then
// those of b.
//   a_format, b_format    e4m3 | e5m2 (quantize/fp8.h), not both e5m2
//   fast                  a GPU may keep no more than that of all sums
//   out                   the dtype of y: f32, bf16 or f16
ir::OpDef matmul_fp8_def();

MatmulProblem matmul_fp8_problem(const TensorType& a, const TensorType& b, const ir::Attributes& attributes);

}  // namespace trireme::ops
