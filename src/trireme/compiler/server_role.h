#pragma once
#include "trireme/compiler/compiled.h"

namespace trireme::compiler {

// Adds a role and a seat for each server of the plan, behind the first role, whose ranks are the workers.
void add_server_roles(Compiled& c, const Graphs& graphs, const Plan& plan);

}  // namespace trireme::compiler
