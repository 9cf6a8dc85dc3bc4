#pragma once
#include <span>

#include "trireme/program/program.h"

namespace trireme::program {

// What a rank does when it runs these programs one after another, as one list of instructions: a program begins when
// every stream has done all of the one before. For what communicates alone (check_together): operands name the buffers
// of their own programs.
Program concatenated(std::span<const Program* const> programs);

}  // namespace trireme::program
