#pragma once
#include "trireme/ir/graph.h"
#include "trireme/passes/cost_rates.h"

namespace trireme::planner {

// Seconds that a node takes by its op's own cost on a device of round numbers: decisions made with them are the same on
// every machine and in every run. What they are good for are ratios.
double nominal_seconds(const ir::Graph& graph, const ir::Node& node, const passes::CostRates& rates);

}  // namespace trireme::planner
