#pragma once
#include "trireme/compiler/compile.h"

namespace trireme::compiler {

// Adds the roles and seats of the plan's servers behind those of the workers, of which there is a role for each of
// `places`: each of them has servers of its own. `options.dump_passes` gets a folder for each.
void add_server_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const std::vector<passes::Places>& places,
                      const CompileOptions& options);

// The modules of the ranks, beyond those of the mesh, that workers of these places exchange messages with.
std::vector<ir::Module> modules_beyond(const Graphs& graphs, const Plan& plan, const passes::Places& places);

}  // namespace trireme::compiler
