#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// accuracy(logits [...,V], targets i32 [...]) → f32 []
//
// scale · the number of rows whose largest logit (of equal ones the first) is that of the target; rows with a negative
// target do not count. Has no gradient. Attribute: scale = 1.0.
ir::OpDef accuracy_def();

std::shared_ptr<device::Kernel> prepare_accuracy_cpu(const ir::KernelSpec& spec);
std::size_t accuracy_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
