#pragma once
#include <string>

#include "trireme/ir/builder.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// matmul(a, b, bias?, aux?) → y [, pre]
//
// Matrices are tensors whose dimensions form two groups: [0, split) and the rest (split = -1: all but the last, and the
// last). One group of each operand is contracted, and must have the same extents dimension by dimension in both; the
// result has the free dimensions of a, then those of b:
//
//   y[x[b,s|k], W[n|k], trans_b]                              → [b,s,n]      a linear layer
//   y[dY[b,s|n], W[n|k]]                                      → [b,s,k]      its input's gradient
//   y[dY[b,s|n], X[b,s|k], trans_a, a_split=2, b_split=2]     → [n,k]        its weight's gradient
//
//   trans_a, trans_b    a is stored contracted group first; b free group first
//   activation          none | relu | gelu | gelu_tanh | silu:    y = activation(a·b + bias)
//   save_pre            a second output: a·b + bias, before the activation
//   activation_grad     one of the same:                          y = (a·b) ⊙ activation'(aux)
//                       aux has y's shape and a's dtype: what the activation was applied to (relu: or what it gave).
//                       y may overwrite aux.
//   add                 y = a·b + aux, which has y's type and may be overwritten by it; goes with nothing else
//   out                 same | f32: the dtype of y and pre; "same" is a's
//   tf32                f32 operands may be rounded to 10 bits of fraction where a GPU multiplies them; a CPU never
//   does
//
// a and b have one dtype, sums are f32. bias has the shape of b's free dimensions and any compute dtype.
ir::OpDef matmul_def();

}  // namespace trireme::ops
