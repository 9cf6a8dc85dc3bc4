#include "trireme/planner/node_time.h"

#include <algorithm>

namespace trireme::planner {
namespace {

// Two current server cores: what their vector units and their memory do.
constexpr double kFlops = 160e9;
constexpr double kBytes = 20e9;

}  // namespace

double nominal_seconds(const ir::Cost& cost) {
  return std::max(cost.flops / kFlops, (cost.bytes_read + cost.bytes_written) / kBytes);
}

double nominal_seconds(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->traits.view) return 0;
  const ir::Types inputs = graph.input_types(node);
  const ir::Types outputs = graph.output_types(node);
  return nominal_seconds(node.op->cost(inputs, outputs, node.attributes));
}

}  // namespace trireme::planner
