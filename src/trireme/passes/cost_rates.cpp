#include "trireme/passes/cost_rates.h"

#include "trireme/ir/graph.h"

namespace trireme::passes {

std::vector<double> start_times(const ir::Graph& graph, const CostRates& rates) {
  std::vector<double> starts = {0};
  for (const ir::Node& node : graph.nodes) {
    double seconds = 0;
    if (!node.op->traits.view)
      seconds =
          rates.compute_seconds(node.op->cost(graph.input_types(node), graph.output_types(node), node.attributes));
    starts.push_back(starts.back() + seconds);
  }
  return starts;
}

}  // namespace trireme::passes
