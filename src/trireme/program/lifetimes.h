#pragma once
#include <set>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// By instruction: the first of the compute stream that starts when it is known to be done (program/happens_before.h);
// none: the last instruction. Of the compute stream's own: itself.
std::vector<std::size_t> known_done(const Program& program);

// Sets each buffer's first and last instruction. What an instruction beside the compute stream touches lives until the
// compute stream has waited for it, or else to the end; so do the buffers of `kept` outputs.
void find_lifetimes(Program& program, const std::set<BufferId>& kept);

// An output takes over the buffer of an input that dies at its instruction, where the op can work in place. The first
// `states` buffers are states, which are left alone.
void reuse_dying_inputs(Program& program, std::size_t states, std::set<BufferId>& kept);

}  // namespace trireme::program
