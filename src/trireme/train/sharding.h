#pragma once
#include <string>
#include <vector>

#include "trireme/ir/mesh.h"
#include "trireme/passes/propagate.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::train {

// How a model's tensors are sharded beyond the rows of the batch: what parallel.sharding says or, where it is silent,
// the preset of the model's family for the axes that the mesh has. Few annotations are enough: the first matrix of each
// pair that is sharded by columns and then by rows. Graphs that do not train may lack what sequence parallelism names.
std::vector<passes::Annotation> sharding_of(const Config& config, const ir::Mesh& mesh, bool trains = true);

// Where the user's annotations take the place of the preset and leave some of it out: what that means. Else empty.
std::string preset_warning(const Config& config, const ir::Mesh& mesh);

// The graphs with the sharding of every value, in global shapes, and why each is sharded so.
struct ExplainedSharding {
  ir::Module module;
  passes::Propagate::Reasons reasons;
};
ExplainedSharding explain_sharding(const Config& config, const Registry& registry);

}  // namespace trireme::train
