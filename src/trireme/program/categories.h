#pragma once
#include "trireme/ir/graph.h"
#include "trireme/program/graph_run.h"
#include "trireme/program/program.h"

// Categories of the memory plan and its reports: every buffer belongs to one.
namespace trireme::program {

Category category_of(const ir::State& state);

// The category of the outputs of a node. They are activations unless a collective gathers, scatters or sends them.
Category category_made(const GraphRun& run, const ir::Node& node);

}  // namespace trireme::program
