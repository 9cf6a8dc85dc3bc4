#pragma once
#include <cstdint>
#include <span>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"

namespace trireme::ops {

// What a matmul node asks for, as matrices: y[m,n] = a·b over k.
struct MatmulProblem {
  int a_split = 0, b_split = 0;  // resolved
  bool trans_a = false, trans_b = false;
  Shape a_free, b_free, contracted;
  std::int64_t m = 0, n = 0, k = 0;

  std::int64_t lda() const { return trans_a ? m : k; }
  std::int64_t ldb() const { return trans_b ? k : n; }
};

// Throws with what was expected when the operands do not fit together.
MatmulProblem matmul_problem(const TensorType& a, const TensorType& b, const ir::Attributes& attributes);

}  // namespace trireme::ops
