#pragma once
#include <cstddef>

#include "trireme/compiler/compiled.h"

namespace trireme::testing {

struct Guards {
  std::size_t canaries = 0;  // buffers with bytes behind them that are looked at
  std::size_t poisoned = 0;  // buffers whose bytes are spoilt as soon as the plan says that nothing reads them any more
};

// Rewrites compiled programs for the CPU so that a run shows what a memory plan would hide. Every buffer gets a gap
// behind it, by doubling all offsets; its first bytes are written before the buffer's first use, and after its last one
// they must be as they were. Behind its last use a buffer that is not kept is filled with NaNs: what reads it later
// trains something else. Tensors in other tiers are left alone.
Guards guard_memory(compiler::Compiled& compiled);

}  // namespace trireme::testing
