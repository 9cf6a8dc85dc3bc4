#include "trireme/planner/node_time.h"

#include <algorithm>

#include "trireme/passes/cost_rates.h"

namespace trireme::planner {

double nominal_seconds(const ir::Cost& cost) {
  constexpr passes::CostRates kRates;
  return std::max(cost.flops / kRates.flops, (cost.bytes_read + cost.bytes_written) / kRates.memory);
}

double nominal_seconds(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->traits.view) return 0;
  const ir::Types inputs = graph.input_types(node);
  const ir::Types outputs = graph.output_types(node);
  return nominal_seconds(node.op->cost(inputs, outputs, node.attributes));
}

}  // namespace trireme::planner
