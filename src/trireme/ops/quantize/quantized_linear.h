#pragma once
#include "trireme/ir/op_def.h"
#include "trireme/ops/quantize/codes.h"

namespace trireme::ops {

// quantized_linear(x, codes, scale, bias?) bits=8 group=0 x_split=-1 out=[…] → y
//
// x · weightᵀ + bias, where the weight [n,k] is given as codes (codes.h): x [rows…, inner…] is contracted over its
// dimensions from x_split on (-1: the last), which have k elements, and y is [rows…, out…] of x's type, where `out`
// has n elements. Sums are f32, over x as it is and the codes; scales are applied to the sums. Few rows are multiplied
// straight from the codes, so that each is read once; for many, tiles of the weight are expanded to f32.
ir::OpDef quantized_linear_def();

// quantized_embedding(tokens i32 […], codes, scale) bits=8 group=0 width=k to="f32" → […,k]: rows of a table of codes.
ir::OpDef quantized_embedding_def();

// dequantize_rows(codes, scale) bits=8 group=0 width=k to="f32" → [n,k]
ir::OpDef dequantize_rows_def();

std::shared_ptr<device::Kernel> prepare_quantized_linear_cpu(const ir::KernelSpec& spec);
std::size_t quantized_linear_cpu_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantized_embedding_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dequantize_rows_cpu(const ir::KernelSpec& spec);

// What a quantized_linear node asks for, as matrices.
struct QuantizedProblem {
  CodeFormat format;
  std::int64_t m = 0, n = 0, k = 0;
};
QuantizedProblem quantized_problem(std::span<const TensorType> inputs, const ir::Attributes& attributes);
// Of quantized_linear and int8_linear, whose operands are x, codes, scale, perhaps scalars, and bias.
Shape quantized_product(std::span<const TensorType> inputs, const ir::Attributes& attributes);
ir::Factors quantized_factors(std::span<const TensorType> inputs, const ir::Attributes& attributes);
ir::Cost quantized_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                        const ir::Attributes& attributes);
// Throws unless codes and scales are those of rows of k elements.
void expect_codes(const TensorType& codes, const TensorType& scale, const CodeFormat& format, std::int64_t k);

}  // namespace trireme::ops
