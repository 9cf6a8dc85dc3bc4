#pragma once
#include <functional>
#include <span>

#include "trireme/train/rank.h"

namespace trireme::train {

// Sets what a rank stores of a state from `read(slice, out)`, which fills a block of the whole state, row-major:
// straight into place where the state lies in the memory of a CPU and is stored without padding.
void load_slice(Rank& rank, const ir::State& state,
                const std::function<void(const ir::Slice& slice, std::span<std::byte> out)>& read);

}  // namespace trireme::train
