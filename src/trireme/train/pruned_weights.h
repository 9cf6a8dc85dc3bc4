#pragma once
#include <functional>
#include <span>

#include "trireme/train/rank.h"

namespace trireme::train {

// A weight with fewer zeros was not pruned: these are chance.
inline constexpr double kPrunedShare = 0.1;

// Weights that were pruned after training come without masks: what is zero of them is what the first mask takes out.
// Sets what the rank has of a mask from its weight, of which `read(slice, out)` fills a block. Gives whether the weight
// was pruned, and leaves the mask as it is otherwise; a weight of nothing but zeros was never trained.
bool set_mask_from(Rank& rank, const ir::State& mask,
                   const std::function<void(const ir::Slice& slice, std::span<std::byte> out)>& read);

}  // namespace trireme::train
