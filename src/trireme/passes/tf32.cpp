#include "trireme/passes/tf32.h"

namespace trireme::passes {

void Tf32::run(ir::Module& module) const {
  for (ir::Graph& graph : module.graphs)
    for (ir::Node& node : graph.nodes)
      if (node.attributes.find("tf32") != nullptr && graph.type(node.inputs.front()).dtype == DType::f32)
        node.attributes.set("tf32", true);
}

}  // namespace trireme::passes
