#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// Scaled dot-product attention: o = softmax(scale · q·kᵀ) · v for each batch row and head, in memory linear in the
// length.
//
//   operands    q [b,s,h,d], k and v [b,t,g,d] with h a multiple of g: head i reads key head i / (h/g);
//               or q alone as [b,s,3,h,d], which holds queries, keys and values;
//               starts? i32 [b,s], causal and s = t: the first key that each query sees, as document_starts gives it
//               (it does not fall along a row, and is at most the query's own position)
//   attributes  causal = true: query i sees keys 0 … i + (t − s), so t >= s
//               scale = 0.0: 0 means 1/√d
//               tf32 = false: as matmul has it
//   outputs     o [b,s,h,d] of q's type; lse f32 [b,h,s]: log Σ exp of each row of scores, kept for the gradient
ir::OpDef attention_def();

// Operands q, k?, v?, o, lse, do and starts? as above; outputs dq, dk, dv, or one tensor of q's shape when q holds all
// three. Recomputes the scores block by block from lse; deterministic.
ir::OpDef attention_grad_def();

}  // namespace trireme::ops
