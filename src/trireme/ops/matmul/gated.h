#pragma once
#include "trireme/ir/op_def.h"
#include "trireme/ops/define.h"

namespace trireme::ops {

// gated_linear(x, gate_weight, up_weight) → y, gate, up
//
//   gate = x·gate_weight, up = x·up_weight, y = swiglu(gate, up)
//
// Operands and attributes are those of two products (matmul.h) of the same sizes.
ir::OpDef gated_linear_def();

// gated_linear_grad(dy, weight, gate, up) → dgate, dup
//
//   dgate, dup = swiglu_grad(gate, up, dy·weight)
//
// where dy is the gradient of what the next product made of y. dgate may overwrite gate, dup up.
ir::OpDef gated_linear_grad_def();

// Their kernels from those of matmul, swiglu and its gradient: what runs where there is none that does it in one.
struct GatedParts {
  Prepare matmul, swiglu, swiglu_grad;
  Workspace matmul_workspace;

  std::shared_ptr<device::Kernel> linear(const ir::KernelSpec& spec) const;
  std::shared_ptr<device::Kernel> gradient(const ir::KernelSpec& spec) const;
  std::size_t linear_workspace(const ir::KernelSpec& spec) const;
  std::size_t gradient_workspace(const ir::KernelSpec& spec) const;
};

}  // namespace trireme::ops
