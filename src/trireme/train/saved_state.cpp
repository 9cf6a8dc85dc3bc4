#include "trireme/train/saved_state.h"

#include <algorithm>
#include <set>

#include "trireme/io/safetensors_layout.h"
#include "trireme/io/shard_writer.h"
#include "trireme/train/compile.h"

namespace trireme::train {

SavedRows saved_rows(const ir::State& state, int number, int ranks) {
  const bool in_parts = state.whole.rank() > 0;
  const bool shared = in_parts || (ranks > 1 && state.type.shape.rank() > 0);
  SavedRows rows;
  rows.extent = shared ? state.global_shape().as_rows() : state.type.shape;
  rows.start = rows.extent;
  for (int d = 0; d < rows.start.rank(); ++d) rows.start[d] = 0;
  if (!shared) {
    if (number > 0 && rows.extent.rank() > 0) rows.extent[0] = 0;
    return rows;
  }
  const std::int64_t all = rows.extent[0];
  const std::int64_t each = in_parts ? state.type.shape[0] : (all + ranks - 1) / ranks;
  rows.start[0] = std::min(all, each * number);
  rows.extent[0] = std::min(each, all - rows.start[0]);
  return rows;
}

std::size_t whole_staging(const ir::Module& module, int ranks) {
  std::vector<std::pair<std::string, TensorType>> types;
  // The first rank saves the most.
  for (const ir::State& state : module.states)
    if (is_saved(state))
      types.emplace_back(state.name, TensorType{state.type.dtype, saved_rows(state, 0, ranks).extent});
  return io::whole_staging(io::lay_out_safetensors(types).bytes);
}

std::vector<ir::State> Compiled::saved_states() const {
  std::vector<ir::State> saved;
  std::set<std::string> seen;
  const auto take = [&](const ir::Module& from) {
    for (const ir::State& state : from.states)
      if (is_saved(state) && seen.insert(state.name).second) saved.push_back(state);
  };
  take(module);
  for (const Compiled& server : servers) take(server.module);
  return saved;
}

}  // namespace trireme::train
