#pragma once
#include "trireme/compiler/plan.h"
#include "trireme/program/lower.h"

namespace trireme::compiler {

// What lowering under a plan needs to know: stream overlaps and windows of copies.
program::LowerOptions lower_options(const Plan& plan);

// program::lower, of which the collectives have the scratch that the plan's transport wants for each: known before
// there is any communicator.
program::Program lower(const ir::Module& module, const program::StateLayout& layout,
                       const program::LowerOptions& options, const Plan& plan);

}  // namespace trireme::compiler
