#include "trireme/cost/rates.h"

#include "trireme/ir/graph.h"

namespace trireme::cost {

double nominal_seconds(const ir::Graph& graph, const ir::Node& node, const Rates& rates) {
  if (node.op->traits.view) return 0;
  return rates.compute_seconds(node.op->cost(graph.input_types(node), graph.output_types(node), node.attributes));
}

std::vector<double> start_times(const ir::Graph& graph, const Rates& rates) {
  std::vector<double> starts = {0};
  for (const ir::Node& node : graph.nodes) starts.push_back(starts.back() + nominal_seconds(graph, node, rates));
  return starts;
}

}  // namespace trireme::cost
