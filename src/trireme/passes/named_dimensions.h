#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/axes.h"
#include "trireme/ir/graph.h"

namespace trireme::passes {

// A state or a value, as annotations name its dimensions (passes/propagate.h).
struct NamedTensor {
  const ir::Module& module;
  ir::StateId state = ir::kNone;  // kNone: a value of one of the graphs
  std::string name;
  const TensorType& type;
};

// Dimensions by their names. `out` and `in` of a parameter follow from the node that multiplies with it: a weight that
// makes or reads heads is sharded by those.
std::map<std::string, int> named_dimensions(const NamedTensor& tensor);

// By name or by number; nothing: there is no such dimension.
std::optional<int> find_dimension(const NamedTensor& tensor, const std::string& name);

// What `find_dimension` takes, for people: "in, out, or 0 to 1".
std::string dimension_names(const NamedTensor& tensor);

// Refuses an annotation that shards two dimensions over one axis; the first that the tensor has is proposed.
void check_axes_once(const std::string& pattern, const std::string& sharding, const NamedTensor& tensor);

// `"batch:tp" and "batch:dp"`: the axes, or parts of axes, that shard a dimension, and one more.
std::string sharded_by(std::string_view dimension, std::vector<std::string> axes, const std::string& more);

// The proposal for an annotation that is refused: "out:tp", or over another axis, in quotes, and a mesh with this axis
// where the given one has none.
std::string proposed_sharding(std::string_view dimension, std::string_view mesh,
                              std::string_view axis = ir::kTensorAxis);

}  // namespace trireme::passes
