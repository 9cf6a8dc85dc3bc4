#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Finds the launches that an accelerator does at once: consecutive instructions of one stream and one op whose kernel
// can do many (ir::KernelDef::groups), such as the updates of many small tensors, or consecutive small copies. No
// member touches bytes that another writes, and only the first waits for events.
//
//     7  adamw   w₀ ← …            7  adamw   w₀ ← …   ┐
//     8  adamw   w₁ ← …            8  adamw   w₁ ← …   │ one launch
//     9  adamw   w₂ ← …            9  adamw   w₂ ← …   ┘
//
// Comes with memory planned. On the CPU nothing is grouped.
void find_launch_groups(Program& program);

// Throws unless the program's groups are such, naming the instructions.
void verify_launch_groups(const Program& program);

}  // namespace trireme::program
