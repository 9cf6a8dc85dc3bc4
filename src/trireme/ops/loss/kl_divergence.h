#pragma once
#include "trireme/ir/builder.h"

namespace trireme::ops {

// kl_divergence(student_logits [...,V], teacher_logits like it) → loss f32 []
//
// loss = scale · Σ over rows of KL(p ‖ q) = Σ p · (log p − log q), with p = softmax(teacher / temperature) and
// q = softmax(student / temperature). The teacher has no gradient. Attributes: scale = 1.0, temperature = 1.0; the
// factor temperature² of distillation belongs into scale.
ir::OpDef kl_divergence_def();

// kl_divergence_grad(student_logits, teacher_logits, dloss f32 []) → dloss · scale / temperature · (q − p). In place on
// either.
ir::OpDef kl_divergence_grad_def();

std::shared_ptr<device::Kernel> prepare_kl_divergence_cpu(const ir::KernelSpec& spec);
std::size_t kl_divergence_workspace_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_kl_divergence_grad_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
