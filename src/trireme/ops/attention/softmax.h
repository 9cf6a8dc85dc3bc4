#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// softmax(x) → exp(x) / Σ exp(x) over the last dimension. In place.
ir::OpDef softmax_def();
ir::Value softmax(ir::Value x);

// softmax_grad(y, dy) → y · (dy − Σ y·dy), y being softmax's output. In place on either.
ir::OpDef softmax_grad_def();

std::shared_ptr<device::Kernel> prepare_softmax_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_softmax_grad_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
