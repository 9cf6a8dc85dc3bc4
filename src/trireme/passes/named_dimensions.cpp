#include "trireme/passes/named_dimensions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/axis_parts.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// The node that multiplies with a parameter, or with its copy in another precision or rounded.
const Node* product_with(const ir::Module& module, ir::StateId state) {
  for (const Graph& graph : module.graphs) {
    std::set<ValueId> same;
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (const ir::ValueInfo& value = graph.values[v]; value.kind == ir::ValueInfo::Kind::state)
        if (value.state == state || module.state(value.state).derived_from == module.state(state).name)
          same.insert(static_cast<ValueId>(v));
    for (const Node& node : graph.nodes) {
      if (node.phase != ir::Phase::forward) continue;
      for (std::size_t i = 0; i < node.inputs.size() && i < 2; ++i) {
        if (!same.contains(node.inputs[i])) continue;
        if (node.op->name == "matmul" || node.op->name == "conv2d") return &node;
        if (node.inputs.size() == 1 && graph.type(node.outputs.front()).shape == graph.type(node.inputs.front()).shape)
          same.insert(node.outputs.front());
      }
    }
  }
  return nullptr;
}

bool is_image(const NamedTensor& tensor) {
  if (tensor.name == "images") return true;
  for (const Graph& graph : tensor.module.graphs)
    for (const Node& node : graph.nodes)
      if (node.op->name.starts_with("conv2d") || node.op->name.find("pool2d") != std::string::npos) return true;
  return false;
}

std::map<std::string, int> of_parameter(const NamedTensor& tensor) {
  const int rank = tensor.type.shape.rank();
  const Node* product = product_with(tensor.module, tensor.state);
  int out = rank > 1 ? 1 : rank;  // dimensions of the output: the first so many
  if (product != nullptr && product->op->name == "matmul" && rank > 1) {
    const std::int64_t split = product->attributes.integer("b_split");
    out = static_cast<int>(split == -1 ? rank - 1 : split);
  }
  std::map<std::string, int> names;
  names["out"] = out >= 3 ? out - 2 : 0;
  if (out < rank) names["in"] = product != nullptr && product->op->name == "conv2d" ? rank - 1 : out;
  if (rank == 2) names["vocab"] = 0;
  return names;
}

}  // namespace

std::map<std::string, int> named_dimensions(const NamedTensor& tensor) {
  const int rank = tensor.type.shape.rank();
  if (rank == 0) return {};
  if (tensor.state != kNone) return of_parameter(tensor);
  std::map<std::string, int> names;
  names["batch"] = 0;
  if (rank >= 2) names["feature"] = rank - 1;
  if (rank == 4 && is_image(tensor)) {
    names["height"] = 1;
    names["width"] = 2;
    names["channel"] = 3;
  } else {
    if (rank >= 2) names["sequence"] = 1;
    if (rank >= 4) names["head"] = rank - 2;
  }
  return names;
}

std::optional<int> find_dimension(const NamedTensor& tensor, const std::string& name) {
  const int rank = tensor.type.shape.rank();
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 3) {
    const int number = std::stoi(name);
    return number < rank ? std::optional(number) : std::nullopt;
  }
  const std::map<std::string, int> names = named_dimensions(tensor);
  const auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

std::string dimension_names(const NamedTensor& tensor) {
  std::string names;
  for (const auto& [name, dim] : named_dimensions(tensor)) names += name + ", ";
  const int last = tensor.type.shape.rank() - 1;
  if (last < 0) return "none";
  return names + (last == 0 ? "or 0" : fmt::format("or 0 to {}", last));
}

void check_axes_once(const std::string& pattern, const std::string& sharding, const NamedTensor& tensor) {
  std::map<std::string, std::vector<std::string>> dimensions;  // by axis
  for (const std::string& part : split(sharding, ','))
    if (const std::vector<std::string> pair = split(trim(part), ':'); pair.size() == 2)
      dimensions[std::string(trim(pair[1]))].emplace_back(trim(pair[0]));
  for (const auto& [axis, given] : dimensions) {
    if (given.size() < 2) continue;
    const auto there = std::find_if(given.begin(), given.end(),
                                    [&](const std::string& name) { return find_dimension(tensor, name).has_value(); });
    const std::string nearest = there != given.end() ? *there : "0";
    refuse("parallel.sharding: \"{}\" = \"{}\" shards two dimensions of {} {} over {}; the nearest is \"{}:{}\"",
           pattern, sharding, tensor.name, tensor.type.str(), axis, nearest, axis);
  }
}

std::string sharded_by(std::string_view dimension, std::vector<std::string> axes, const std::string& more) {
  for (std::string& axis : axes) axis = std::string(ir::axis_of_part(axis));
  axes.push_back(more);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  for (std::string& axis : axes) axis = fmt::format("\"{}:{}\"", dimension, axis);
  return fmt::format("{}", fmt::join(axes, " and "));
}

std::string proposed_sharding(std::string_view dimension, std::string_view mesh, std::string_view axis) {
  const std::string proposed = fmt::format("\"{}:{}\"", dimension, axis);
  std::vector<std::string> axes;
  for (const std::string& part : split(mesh, ',')) {
    const std::vector<std::string> pair = split(part, '=');
    if (pair.size() != 2) continue;  // "auto"
    const bool same = trim(pair[0]) == axis;
    if (same && trim(pair[1]) != "1") return proposed;
    if (!same) axes.emplace_back(trim(part));
  }
  axes.push_back(fmt::format("{}=2", axis));
  return fmt::format("{} with parallel.mesh = \"{}\"", proposed, fmt::join(axes, ","));
}

}  // namespace trireme::passes
