#pragma once
#include "trireme/program/program.h"

namespace trireme::program {

// Gives every launch the scratch bytes that its kernel asks for. Throws when an op has no kernel for its types on the
// program's device.
void add_workspaces(Program& program);

}  // namespace trireme::program
