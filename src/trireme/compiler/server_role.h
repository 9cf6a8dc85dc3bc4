#pragma once
#include "trireme/compiler/compile.h"

namespace trireme::compiler {

// Adds a role and a seat for each server of the plan, behind the first role, whose ranks are the workers.
// `options.dump_passes` gets a folder for each.
void add_server_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const CompileOptions& options);

}  // namespace trireme::compiler
