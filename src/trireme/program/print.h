#pragma once
#include <string>

#include "trireme/program/program.h"

namespace trireme::program {

// One line per instruction: number, micro-batch, phase, op, what it reads and writes and where.
//
//   program step: 214 instructions, arena 14,680,064 B (state 5,029,888 B)
//      0  input   %tokens                      → tokens @5029888+4096
//     12  forward matmul  blocks.0.up          ← ln1 @…, blocks.0.up.weight @… → …
std::string to_text(const Program& program);

}  // namespace trireme::program
