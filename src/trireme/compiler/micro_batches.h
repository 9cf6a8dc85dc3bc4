#pragma once
#include "trireme/compiler/compiled.h"

namespace trireme::compiler {

// The step of `compiled` with another number of micro-batches, that of `graphs`: lowered again from the modules that
// the graph passes have left, which are the same for any number but one. For those who time steps and do not run them:
// the other programs are gone, and roles are not proven against each other.
Compiled with_micro_batches(Compiled compiled, const Graphs& graphs);

}  // namespace trireme::compiler
