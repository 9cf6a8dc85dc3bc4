#pragma once
#include "trireme/passes/rebuild.h"
#include "trireme/passes/routes.h"

namespace trireme::passes {

// Adds the nodes of one step of a route to a graph that is being rebuilt with local shapes: the collective, and the
// copies around it where the dimension is not the first. `type` is the whole value's, `value` what this rank has of it
// under `sharding`; the result is named after `label`. `places` are those along spatial axes.
ir::ValueId reshard(Rebuild& rebuild, ir::ValueId value, const TensorType& type, const ir::Sharding& sharding,
                    const RouteStep& step, const ir::Mesh& mesh, const Places& places, const std::string& label,
                    const ir::Node& like);

}  // namespace trireme::passes
