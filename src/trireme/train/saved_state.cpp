#include "trireme/train/saved_state.h"

#include "trireme/io/safetensors_layout.h"
#include "trireme/io/shard_writer.h"

namespace trireme::train {

std::size_t whole_staging(const ir::Module& module) {
  std::vector<std::pair<std::string, TensorType>> types;
  for (const ir::State& state : module.states)
    if (is_saved(state)) types.emplace_back(state.name, state.type);
  return io::whole_staging(io::lay_out_safetensors(types).bytes);
}

}  // namespace trireme::train
