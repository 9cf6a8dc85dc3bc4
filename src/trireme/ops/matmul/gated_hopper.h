#pragma once
#include <cstdint>

#include "trireme/core/dtype.h"

namespace trireme::ops::cuda {

// Products with swiglu or its gradient in one kernel, by Hopper's tensor cores: 16 bits, n and k multiples of 8. A
// product's sums are rounded as if they had gone through memory.
struct GatedSpec {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::bf16;
};
bool hopper_gated_fits(const GatedSpec& spec);  // from the sizes alone

// x[m,k], gate_weight[n,k], up_weight[n,k] → y, gate and up, each [m,n].
struct GatedForward {
  const void *x, *gate_weight, *up_weight;
  void *y, *gate, *up;
};
void hopper_gated(void* stream, const GatedSpec& spec, const GatedForward& g);

// dy[m,k], weight[k,n], gate[m,n], up[m,n] → dgate and dup, which may lie where gate and up do.
struct GatedGradient {
  const void *dy, *weight, *gate, *up;
  void *dgate, *dup;
};
void hopper_gated_grad(void* stream, const GatedSpec& spec, const GatedGradient& g);

}  // namespace trireme::ops::cuda
