#pragma once
#include "trireme/ir/builder.h"
#include "trireme/ir/partition.h"

// linear_cross_entropy over a weight of which each rank has some rows: what its partition is made of. The log of the
// sum of exponentials is taken of each rank's logits and then of all, and with that each rank computes its part of the
// gradients from its logits, recomputed.
namespace trireme::ops {

// linear_lse(x [...,D], weight [V,D], targets i32 [...], place i64 []) vocab=0 chunk=0 tf32=false → lse f32 [...]: log
// Σ exp of the row's logits, of those rows of the weight that are words; target f32 [...]: the logit of the row's
// target. The weight's rows are words place·V to place·V + V of `vocab`; of a target that is not among them the logit
// is 0.
ir::OpDef linear_lse_def();

// linear_cross_entropy_given(x, weight, targets, place, lse f32 [...], target f32 [...], dloss? f32 []) scale=1.0
// vocab=0 with_gradients=false chunk=0 out="same" tf32=false → loss, and with gradients dx: this rank's term of it;
// dweight. `lse` and `target` are those of all words.
ir::OpDef linear_cross_entropy_given_def();

// lse_terms(lse, top) → exp(lse − top): the terms of the sum that join_lse takes. 0 where lse is −∞.
ir::OpDef lse_terms_def();
// join_lse(sum, top) → top + log(sum)
ir::OpDef join_lse_def();

void partition_linear_cross_entropy(ir::PartitionContext& context);

std::shared_ptr<device::Kernel> prepare_linear_lse_cpu(const ir::KernelSpec& spec);
std::size_t linear_lse_workspace_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_given_cpu(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_given_workspace_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
