#pragma once
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// By instruction: the first of the compute stream that happens after it (program/happens_before.h); none: the last
// instruction. Of the compute stream's own: itself.
std::vector<std::size_t> happens_after(const Program& program);

// Sets each buffer's first and last instruction. What an instruction of another stream touches lives until the compute
// stream has waited for it, or else to the end; so do the program's outputs.
void find_lifetimes(Program& program);

// An output takes over the buffer of an input that dies at its instruction, where the op can work in place. States are
// left alone.
void reuse_dying_inputs(Program& program);

}  // namespace trireme::program
