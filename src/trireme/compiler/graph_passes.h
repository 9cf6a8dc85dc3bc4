#pragma once
#include <optional>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/passes/pass.h"

namespace trireme::compiler {

// What is sharded over the mesh: what the plan says, and the rows of the batch over the data axis.
std::vector<passes::Annotation> annotations(const Plan& plan);

// Every graph pass of a role, in order, each with the reason for its place. `place` is that of a rank which answers
// messages; nothing: of the ranks that take rows of the batch. `stage` is theirs in a pipeline; up to kSplit the passes
// of all stages are the same.
inline constexpr const char* kSplit = "split";
passes::Pipeline graph_passes(const Graphs& graphs, const Plan& plan, std::optional<int> place = {}, int stage = 0);

}  // namespace trireme::compiler
