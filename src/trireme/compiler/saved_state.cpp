#include "trireme/compiler/saved_state.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/io/safetensors_layout.h"
#include "trireme/io/shard_writer.h"

namespace trireme::compiler {
namespace {

// Share `number` of `count` of what a rank stores.
std::vector<ir::StoredRows> share(const std::vector<ir::StoredRows>& all, std::int64_t number, std::int64_t count) {
  std::int64_t rows = 0;
  for (const ir::StoredRows& s : all) rows += s.rows.extent[0];
  const std::int64_t each = (rows + count - 1) / count;
  const std::int64_t from = std::min(rows, each * number);
  const std::int64_t to = std::min(rows, from + each);
  std::vector<ir::StoredRows> own;
  std::int64_t before = 0;
  for (ir::StoredRows s : all) {
    const std::int64_t end = before + s.rows.extent[0];
    const std::int64_t skipped = std::max<std::int64_t>(0, from - before);
    s.rows.extent[0] = std::min(to, end) - std::max(from, before);
    s.rows.start[0] += skipped;
    s.first += skipped;
    if (s.rows.extent[0] > 0) own.push_back(s);
    before = end;
  }
  return own;
}

}  // namespace

std::vector<ir::StoredRows> saved_rows(const Compiled& compiled, int rank, ir::StateId id) {
  const ir::Module& module = compiled.role_of(rank).module;
  const ir::State& state = module.state(id);
  if (!is_saved(state)) return {};
  const std::vector<ir::StoredRows> own = ir::stored_rows(state, module.mesh, compiled.coordinate(rank));
  std::vector<ir::StateId> in_role;  // by role: the same state there
  for (const Role& role : compiled.roles) in_role.push_back(role.module.find_state(state.name));
  std::int64_t holders = 0;
  std::int64_t before = 0;
  for (int r = 0; r < compiled.ranks(); ++r) {
    const ir::StateId there = in_role[compiled.seat(r).role];
    if (there == ir::kNone) continue;
    const ir::Module& other = compiled.role_of(r).module;
    if (!is_saved(other.state(there)) || ir::stored_rows(other.state(there), other.mesh, compiled.coordinate(r)) != own)
      continue;
    before += r < rank ? 1 : 0;
    ++holders;
  }
  if (state.global_shape().elements() == 0)
    return before > 0 ? std::vector<ir::StoredRows>{}
                      : std::vector{ir::StoredRows{ir::all_of(state.global_shape()), 0}};
  if (holders == 1) return own;
  if (state.global_shape().rank() == 0) return before > 0 ? std::vector<ir::StoredRows>{} : own;
  return share(own, before, holders);
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
    for (const std::string& axis : state.row_axes) shards *= module.mesh.size_of(axis);
    if (const std::int64_t replicas = ranks / shards; replicas > 1 && extent.rank() > 0) {
      extent = extent.as_rows();
      extent[0] = (extent[0] + replicas - 1) / replicas;
    }
    types.emplace_back(state.name, TensorType{state.type.dtype, extent});
  }
  return io::whole_staging(io::lay_out_safetensors(types).bytes);
}

}  // namespace trireme::compiler
