#pragma once
#include <vector>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// quantize_int8(x [...,D]) block=64 → q i8 [...,D], scale f32 [...,⌈D/block⌉]
//
// Symmetric, with one scale for each `block` elements along the last dimension (the last block may be shorter):
//   scale = max|x| / 127 over the block;  q = x · (127 / max|x|), rounded to nearest, ties to even, but not to 0
// What is not 0 becomes ±1 at least: a step function of x, such as where a ReLU was open, survives. So an element is
// off by at most half its block's scale, and one below that by less than the scale. A block whose largest is below
// 1e-30 becomes zero; one with an element that is not finite gets the scale NaN, so that what reads it is not finite
// either. x is f32, bf16 or f16.
ir::OpDef quantize_int8_def();

// dequantize_int8(q i8 [...,D], scale f32 [...,⌈D/block⌉]) block=64 to="f32"|"bf16"|"f16" → q · scale
ir::OpDef dequantize_int8_def();

inline constexpr std::int64_t kInt8Block = 64;

// The type of the scales of a tensor.
TensorType int8_scales(const TensorType& x, std::int64_t block);

std::shared_ptr<device::Kernel> prepare_quantize_int8_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dequantize_int8_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
