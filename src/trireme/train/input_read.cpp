#include "trireme/train/input_read.h"

#include <algorithm>

namespace trireme::train {

std::optional<DType> input_read(const Compiled& compiled, std::string_view graph, std::string_view input) {
  for (const Role& role : compiled.roles) {
    if (!role.module.has_graph(graph)) continue;
    const ir::Graph& own = role.module.graph(graph);
    const auto value = own.find_input(input);
    const bool read = value && std::any_of(own.nodes.begin(), own.nodes.end(), [&](const ir::Node& node) {
                        return std::find(node.inputs.begin(), node.inputs.end(), *value) != node.inputs.end();
                      });
    if (read) return own.type(*value).dtype;
  }
  return std::nullopt;
}

}  // namespace trireme::train
