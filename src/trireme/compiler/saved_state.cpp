#include "trireme/compiler/saved_state.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/io/safetensors_layout.h"
#include "trireme/io/shard_writer.h"

namespace trireme::compiler {
namespace {

// Share `number` of `count` of a slice's rows.
std::optional<ir::Slice> share(ir::Slice slice, std::int64_t number, std::int64_t count) {
  const std::int64_t rows = slice.extent[0];
  const std::int64_t each = (rows + count - 1) / count;
  const std::int64_t first = std::min(rows, each * number);
  slice.start[0] += first;
  slice.extent[0] = std::min(each, rows - first);
  if (slice.empty() && number > 0) return std::nullopt;
  return slice;
}

}  // namespace

std::optional<ir::Slice> saved_slice(const Compiled& compiled, int rank, ir::StateId id) {
  const ir::Module& module = compiled.role_of(rank).module;
  const ir::State& state = module.state(id);
  if (!is_saved(state)) return std::nullopt;
  const ir::Slice own = ir::slice_of(state, module.mesh, compiled.coordinate(rank));
  std::vector<ir::StateId> in_role;  // by role: the same state there
  for (const Role& role : compiled.roles) in_role.push_back(role.module.find_state(state.name));
  std::int64_t holders = 0;
  std::int64_t before = 0;
  for (int r = 0; r < compiled.ranks(); ++r) {
    const ir::StateId there = in_role[compiled.seat(r).role];
    if (there == ir::kNone) continue;
    const ir::Module& other = compiled.role_of(r).module;
    if (!is_saved(other.state(there)) || ir::slice_of(other.state(there), other.mesh, compiled.coordinate(r)) != own)
      continue;
    before += r < rank ? 1 : 0;
    ++holders;
  }
  if (own.empty()) return before > 0 ? std::nullopt : std::optional(own);
  if (holders == 1) return own;
  if (own.extent.rank() == 0) return before > 0 ? std::nullopt : std::optional(own);
  return share(ir::in_rows(own, ir::sliced_shape(state)), before, holders);
}

std::size_t whole_staging(const ir::Module& module, int ranks) {
  std::vector<std::pair<std::string, TensorType>> types;
  // The first rank saves the most.
  for (const ir::State& state : module.states) {
    if (!is_saved(state)) continue;
    Shape extent = state.type.shape;
    std::int64_t shards = 1;
    for (const auto& axes : state.sharding.dims)
      for (const std::string& axis : axes) shards *= module.mesh.size_of(axis);
    if (const std::int64_t replicas = ranks / shards; replicas > 1 && extent.rank() > 0) {
      extent = extent.as_rows();
      extent[0] = (extent[0] + replicas - 1) / replicas;
    }
    types.emplace_back(state.name, TensorType{state.type.dtype, extent});
  }
  return io::whole_staging(io::lay_out_safetensors(types).bytes);
}

}  // namespace trireme::compiler
