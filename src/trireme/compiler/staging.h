#pragma once
#include "trireme/compiler/compiled.h"

namespace trireme::compiler {

// The same programs with `bytes` for the staging of checkpoints at most (Plan::staging), in whole pages: as if compiled
// so. Staging lies behind the state, and all that a program makes behind that: nothing else changes. What has moved is
// checked again (program/check.h).
Compiled with_staging(Compiled compiled, std::size_t bytes);

}  // namespace trireme::compiler
