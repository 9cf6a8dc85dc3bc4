#pragma once
#include <string>

#include "trireme/compiler/graph_passes.h"

namespace trireme::compiler {

// "stage 1, h 0, w 2", by the places of the role's ranks; "worker" where they have none.
std::string role_name(const passes::Places& places);

// The pipeline stage; 0 where there is one alone.
int stage_of(const passes::Places& places);

}  // namespace trireme::compiler
