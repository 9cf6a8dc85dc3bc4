#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

namespace trireme::ops {

// descend(param f32, direction, variance? f32, lr f32[], step? f32[], finite f32[], keep? f32)
//   beta1=0.0 variance_scale=1.0 eps=1e-8 weight_decay=0.0 low="none"|"bf16"|"f16" → param' [, low copy of param']
//
//   param' = param·(1 − lr·decay) − lr/(1−β1^step) · direction / (√(variance·scale) + eps)
//
// A step along what is given, divided by nothing where there is no variance; without `step`, β1 plays no part. The
// decay is decoupled. finite = 0 leaves param as it was (the low copy is still written). keep multiplies what becomes
// of param, also after a step that is not finite. In place on param.
ir::OpDef descend_def();

std::shared_ptr<device::Kernel> prepare_descend_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
