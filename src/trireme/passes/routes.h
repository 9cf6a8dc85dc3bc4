#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// One way to change how a value is sharded over a mesh axis.
struct RouteStep {
  enum class Kind {
    slice,           // each rank takes its own part of a dimension: nothing moves
    all_gather,      // the parts of a dimension together
    all_reduce,      // the sum (or maximum) of what the ranks have
    reduce_scatter,  // the own part, along a dimension, of that sum
    all_to_all,      // from parts of dimension `dim` to parts of dimension `to`
  };
  Kind kind = Kind::slice;
  std::string axis;  // of an all_reduce also several: "dp+tp"; of others all parts of one: "tp.0+tp.1"
  int dim = -1;
  int to = -1;
  ir::Sharding::Reduce reduce = ir::Sharding::Reduce::sum;

  std::string str() const;  // "all_to_all tp 1→2"
  friend bool operator==(const RouteStep&, const RouteStep&) = default;
};

struct Route {
  std::vector<RouteStep> steps;
  double bytes = 0;  // that each rank sends
};

// The sharding after a step.
ir::Sharding after(const ir::Sharding& sharding, const RouteStep& step);
// What a rank sends in a step that begins with `sharding`.
double bytes_of(const RouteStep& step, const TensorType& type, const ir::Sharding& sharding, const ir::Mesh& mesh);
// Every step that may be taken from there.
std::vector<RouteStep> steps_from(const TensorType& type, const ir::Sharding& sharding, const ir::Mesh& mesh);

// The way from one sharding of a value to another that sends the fewest bytes, over axes that shard it before or after;
// of those with equally many the one with the fewest steps. Nothing: there is none. `type` is the whole value's.
std::optional<Route> cheapest_route(const TensorType& type, const ir::Sharding& from, const ir::Sharding& to,
                                    const ir::Mesh& mesh);

// Whether an axis shards a dimension.
bool shards(const ir::Sharding& sharding, const std::string& axis);

// With the dimensions of `type` spelt out, each dimension's axes in the order of the mesh, and sums over the data axis
// first.
ir::Sharding canonical(ir::Sharding sharding, const TensorType& type, const ir::Mesh& mesh);

// What one rank has of a value, at most: of extents that do not divide the last shards reach beyond the end.
TensorType local_type(const TensorType& type, const ir::Sharding& sharding, const ir::Mesh& mesh);

// The places along spatial axes for which a graph is made, by axis.
using Places = std::map<std::string, int>;
// What the ranks at these places have: of heights and widths true extents (ir::spatial_shard).
TensorType local_type(const TensorType& type, const ir::Sharding& sharding, const ir::Mesh& mesh, const Places& places);
// Whether spatial axes may shard a dimension of this extent: each rank has some of it.
bool may_shard_spatially(std::int64_t extent, const std::string& axis, const ir::Mesh& mesh);
// Ranks along several axes.
std::int64_t ranks_along(const std::vector<std::string>& axes, const ir::Mesh& mesh);

}  // namespace trireme::passes
