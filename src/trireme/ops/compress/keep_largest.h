#pragma once
#include <memory>

#include "trireme/ir/op_def.h"

// Which elements of a tensor are among its largest, and how many of them there are to be.
namespace trireme::ops {

// keep_largest(x f32, among? f32, fraction? f32[]) magnitude=true keep=0 of=0 → f32 of x's shape: 1 where it is kept, 0
// elsewhere.
//
// Of all n elements the round(fraction · n) smallest are not kept; with `of` > 0, of each `of` consecutive elements the
// `keep` largest are. Largest in magnitude, or as they are; of equals, those that come first. Where `among` is 0
// nothing is kept, and such elements count as the smallest. NaN counts as the largest of all.
ir::OpDef keep_largest_def();

// ramp(count f32[]) kind="cubic"|"geometric" to=0.5 steps=1 → f32[]: on the way from 0 to `to` after `count` of `steps`
// steps, at most `to`; t = count / steps.
//
//   cubic       to · (1 − (1 − t)³)     quickly at first, slowly at the end
//   geometric   1 − (1 − to)^t          the same share of what is left each time
ir::OpDef ramp_def();

std::size_t keep_largest_workspace(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_keep_largest_cpu(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_ramp_cpu(const ir::KernelSpec& spec);

}  // namespace trireme::ops
