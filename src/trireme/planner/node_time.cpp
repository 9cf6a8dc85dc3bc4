#include "trireme/planner/node_time.h"

#include <algorithm>

namespace trireme::planner {

double nominal_seconds(const ir::Cost& cost, const passes::CostRates& rates) {
  return std::max(cost.flops / rates.flops, (cost.bytes_read + cost.bytes_written) / rates.memory);
}

double nominal_seconds(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->traits.view) return 0;
  const ir::Types inputs = graph.input_types(node);
  const ir::Types outputs = graph.output_types(node);
  return nominal_seconds(node.op->cost(inputs, outputs, node.attributes));
}

}  // namespace trireme::planner
