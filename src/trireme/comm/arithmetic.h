#pragma once
#include <cstdint>
#include <span>

#include "trireme/comm/types.h"
#include "trireme/core/dtype.h"

namespace trireme::comm {

// The arithmetic of reductions, element by element. 16-bit floats are combined in f32.

// into[i] = into[i] ∘ from[i]; `mean` adds (finish() divides). Rounds to the dtype: one rounding per call.
void combine(void* into, const void* from, std::int64_t count, DType dtype, Reduce reduce);

// The same for halves, converted one by one: what `combine` does on processors without instructions for these
// conversions.
void combine_portably(Float16* into, const Float16* from, std::int64_t count, Reduce reduce);

// The end of a `mean` over `ranks`: divides. Nothing for other reductions.
void finish(void* data, std::int64_t count, DType dtype, Reduce reduce, int ranks);

// targets[k][i] = sources[0][i] ∘ sources[1][i] ∘ …, in this order, with one rounding at the end for 16-bit floats and
// the division of a mean included. A target may be one of the sources, but not overlap one otherwise.
void combine_all(std::span<const void* const> sources, std::span<void* const> targets, std::int64_t count, DType dtype,
                 Reduce reduce);

}  // namespace trireme::comm
