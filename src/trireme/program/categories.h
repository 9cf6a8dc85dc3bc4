#pragma once
#include "trireme/ir/graph.h"
#include "trireme/program/graph_run.h"
#include "trireme/program/program.h"

// What the bytes of a buffer are counted as in the memory plan and its reports.
namespace trireme::program {

Category category_of(const ir::State& state);

// Of what a node of a graph makes: activations, but for what collectives gather, scatter or send.
Category category_made(const GraphRun& run, const ir::Node& node);

}  // namespace trireme::program
