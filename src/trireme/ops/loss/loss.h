#pragma once
#include <string>

#include "trireme/ops/define.h"

// What the losses share. A loss is a f32 scalar: `scale` × a sum over rows, the scale being one over the global count.
// Cut over rows it is a partial sum, so that losses and gradients are summed over pieces and never averaged.
namespace trireme::ops {

inline const char* const kLossIsLast = "second derivatives are not taken";
inline const TensorType kLossType{DType::f32, {}};

// "r0 r1 … last": the dimensions [0, count) of a tensor that has rows, then its last ones; "-" for a scalar.
std::string row_factors(int count, const std::string& last = "");

// The dimensions of a target: those of `rows` without its last one.
TensorType target_type(const TensorType& rows);

// What a target may be: a class that the first operand has a logit for, or negative, which does not count.
ir::IndexRange classes_of_logits(std::span<const TensorType> inputs, const ir::Attributes& attributes);

// Throws unless `logits` is a compute type with at least one dimension.
void expect_logits(const TensorType& logits, const char* operand);

}  // namespace trireme::ops
