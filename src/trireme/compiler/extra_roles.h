#pragma once
#include <vector>

#include "trireme/compiler/compile.h"

namespace trireme::compiler {

// Roles of ranks beyond the mesh, which take no rows of the batch and answer the messages of those that do
// (Role::exchange). A plan without such ranks gets none.

// Refuses a plan some of whose such ranks would have nothing to do, whatever the place of the workers. `common` is what
// all of `places` share: the module before first_pass_by_place.
void check_extra_roles(const ir::Module& common, const Graphs& graphs, const Plan& plan,
                       const std::vector<passes::Places>& places);
// Adds their roles and seats behind those of the mesh, which has a role for each of `places`: each of them has such
// ranks of its own. `options.dump_passes` gets a folder for each role.
void add_extra_roles(Compiled& c, const Graphs& graphs, const Plan& plan, const std::vector<passes::Places>& places,
                     const CompileOptions& options);
// The modules of such ranks that those of the mesh at these places exchange messages with.
std::vector<ir::Module> modules_beyond(const Graphs& graphs, const Plan& plan, const passes::Places& places);
// The groups in which their messages go and in which they meet each other: the first of the run.
std::vector<program::Group> groups_of_extra_roles(const std::vector<Role>& roles);

}  // namespace trireme::compiler
