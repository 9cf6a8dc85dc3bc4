#pragma once
#include <optional>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/passes/pass.h"
#include "trireme/passes/routes.h"

namespace trireme::compiler {

// What is sharded over the mesh: what the plan says, and the rows of the batch over the data axis.
std::vector<passes::Annotation> annotations(const Graphs& graphs, const Plan& plan);

// Where the ranks of each role are: one role for every stage and every place along h and w.
std::vector<passes::Places> role_places(const Plan& plan);

// Every graph pass of a role, in order, each with the reason for its place. `place` is that of a rank which answers
// messages; nothing: of the ranks that take rows of the batch. Those are where `at` says along pp, h and w, by axis;
// where it is silent at the first stage, and at the place along h and w that has the most of an image.
passes::Pipeline graph_passes(const Graphs& graphs, const Plan& plan, std::optional<int> place = {},
                              const passes::Places& at = {});
// The first pass that depends on these places; "": none does.
std::string first_pass_by_place(const Plan& plan);

}  // namespace trireme::compiler
