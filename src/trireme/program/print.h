#pragma once
#include <string>

#include "trireme/program/program.h"

namespace trireme::program {

// One line per instruction: number, micro-batch, phase, op, what it reads and writes and where.
//
//   program step: 214 instructions, 1 micro-batch, 2 threads, arena 14,680,064 B (state 5,029,888 B)
//        0  m0 forward         input                  tokens → tokens i32[4,64]@5029888
//       12  m0 forward         matmul                 up ← ln1 f32[4,8]@5030912, w f32[8,16]@0 → up f32[4,16]@5031040
std::string to_text(const Program& program);

// For messages: "instruction 12 (matmul 'blocks.0.up', micro-batch 1)".
std::string describe(const Program& program, std::size_t instruction);
// The op's name, "input" or "copy".
std::string kind_of(const Instruction& instruction);

}  // namespace trireme::program
