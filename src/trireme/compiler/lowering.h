#pragma once
#include "trireme/compiler/plan.h"
#include "trireme/program/lower.h"

namespace trireme::compiler {

// What lowering a module under a plan needs to know: stream overlaps, windows of copies, and the scratch that the
// plan's transport wants for each collective.
program::LowerOptions lower_options(const Plan& plan, const ir::Mesh& mesh);

}  // namespace trireme::compiler
