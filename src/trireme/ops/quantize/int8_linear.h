#pragma once
#include "trireme/ir/op_def.h"
#include "trireme/ops/quantize/quantized_linear.h"

namespace trireme::ops {

// Products of integers: what a linear layer reads is rounded to 8 bits with one scale for the whole tensor, which was
// found beforehand on other rows, and multiplied by the weight's codes (codes.h) without leaving the integers.
//
// round_to_int8(x, scale f32 []) → i8 of x's shape: x / scale, rounded to nearest, ties to even, and not beyond ±127.
// A scale of 0 gives zeros; what is not a number has no code and becomes an extreme.
ir::OpDef round_to_int8_def();

// int8_linear(x i8, codes, scale, x_scale f32 [], bias?) bits=8 group=0 x_split=-1 out=[…] to="f32"|"bf16"|"f16" → y
//
// As quantized_linear, for the rows x · x_scale: sums of a group are whole numbers and exact, so they are the same
// whatever the order. Rows have at most 65,536 elements.
ir::OpDef int8_linear_def();

// largest_magnitude(x, so_far f32 []) → f32 []: the larger of max|x| and so_far. What is not a number stays so.
ir::OpDef largest_magnitude_def();

inline constexpr std::int64_t kMostInt8Terms = 65536;

std::shared_ptr<device::Kernel> prepare_round_to_int8_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_largest_magnitude_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_int8_linear_cpu(const ir::KernelSpec& spec);
std::size_t int8_linear_cpu_workspace(const ir::KernelSpec& spec);

}  // namespace trireme::ops
