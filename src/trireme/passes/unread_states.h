#pragma once
#include <functional>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// Removes the states that `among` accepts and no node reads, no graph writes and no other state derives from; the rest
// are numbered anew.
void drop_unread_states(ir::Module& module, const std::function<bool(const ir::State&)>& among);

}  // namespace trireme::passes
