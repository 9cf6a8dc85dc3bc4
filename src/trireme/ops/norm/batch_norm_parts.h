#pragma once
#include "trireme/ir/op_def.h"

// Batch normalisation in the parts between which the rows of several ranks are brought together.
namespace trireme::ops {

// channel_moments(x[…,c]) → sum f32[c], mean f32[c], squares f32[c]: of each channel over the rows that are here; the
// squares are of the deviations from that mean.
ir::OpDef channel_moments_def();
// joint_squares(total f32[c], mean, squares) rows all_rows → f32[c]: what these `rows` add to the squared deviations
// from the mean of all rows, whose sum is `total`.
ir::OpDef joint_squares_def();
// batch_norm_given(x, weight, bias, running_mean, running_var, total, squares) rows momentum eps → as batch_norm: with
// the sum and the squared deviations of all `rows`, of which x has some.
ir::OpDef batch_norm_given_def();
// batch_norm_sums(x, mean, rstd, dy) → dweight f32[c], dbias f32[c]: what these rows add to them.
ir::OpDef batch_norm_sums_def();
// batch_norm_dx(x, weight, mean, rstd, dy, dweight, dbias) rows → dx, with the sums of all `rows`.
ir::OpDef batch_norm_dx_def();

// How batch_norm and batch_norm_grad are cut along their rows.
void partition_batch_norm(ir::PartitionContext& p);
void partition_batch_norm_grad(ir::PartitionContext& p);

}  // namespace trireme::ops
