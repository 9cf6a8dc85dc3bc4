#include "trireme/planner/node_time.h"

namespace trireme::planner {

double nominal_seconds(const ir::Graph& graph, const ir::Node& node, const passes::CostRates& rates) {
  if (node.op->traits.view) return 0;
  const ir::Types inputs = graph.input_types(node);
  const ir::Types outputs = graph.output_types(node);
  return rates.compute_seconds(node.op->cost(inputs, outputs, node.attributes));
}

}  // namespace trireme::planner
