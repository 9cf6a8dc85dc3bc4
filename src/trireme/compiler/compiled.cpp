#include "trireme/compiler/compiled.h"

#include <algorithm>
#include <set>

#include "trireme/compiler/saved_state.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::compiler {

const program::Program* Role::find(std::string_view wanted) const {
  for (const program::Program& p : programs)
    if (p.name == wanted) return &p;
  return nullptr;
}

const program::Program& Role::program(std::string_view wanted) const {
  const program::Program* found = find(wanted);
  if (found == nullptr) fail("the role '{}' has no program '{}'", name, wanted);
  return *found;
}

const program::Program* Role::during(std::string_view step) const {
  // A role that answers messages has one program for all steps in which they are the same.
  return find(takes_rows() ? step : exchange->of(step).step);
}

const program::Program& Role::largest() const {
  return *std::max_element(programs.begin(), programs.end(), [](const program::Program& a, const program::Program& b) {
    return a.arena_bytes < b.arena_bytes;
  });
}

std::uint64_t Role::stored_parameters() const {
  std::uint64_t count = 0;
  for (const ir::State& state : module.states)
    if (state.trained) count += static_cast<std::uint64_t>(state.type.elements());
  return count;
}

std::string Role::messages_text() const {
  if (takes_rows()) return {};
  return fmt::format("receives {} B from each worker a step and sends {} B", format_count(exchange->pushed_bytes()),
                     format_count(exchange->pulled_bytes()));
}

std::vector<int> Compiled::coordinate(int rank) const {
  return role_of(rank).module.mesh.coordinate(seat(rank).number);
}

int Compiled::row_shard(int rank) const {
  const ir::Mesh& own = role_of(rank).module.mesh;
  return own.size_of(kRowAxis) == 1 ? 0 : coordinate(rank)[own.index_of(kRowAxis)];
}

ir::Slice Compiled::input_slice(int rank, const std::string& graph, const std::string& input) const {
  const ir::Module& module = role_of(rank).module;
  const ir::Graph& own = module.graph(graph);
  const ir::ValueInfo& value = own.value(own.find_input(input).value());
  const ir::Slice slice =
      ir::slice_of(Shape{micro_rows} + row_shapes.at(input), value.sharding, module.mesh, coordinate(rank));
  TRI_CHECK(slice.extent == value.type.shape, "rank {} reads {} of '{}', and its program {}", rank, slice.extent.str(),
            input, value.type.shape.str());
  return slice;
}

ir::Range Compiled::rows_read(int rank) const {
  std::optional<ir::Range> all;
  const ir::Module& module = role_of(rank).module;
  for (const char* graph : {"micro", "eval"}) {
    if (!module.has_graph(graph)) continue;
    for (const auto& [input, shape] : row_shapes) {
      if (!module.graph(graph).find_input(input)) continue;
      const ir::Slice own = input_slice(rank, graph, input);
      const ir::Range rows{own.start[0], own.start[0] + own.extent[0]};
      all = all ? ir::Range{std::min(all->first, rows.first), std::max(all->last, rows.last)} : rows;
    }
  }
  const std::int64_t share = micro_rows / replicas;
  return all.value_or(ir::Range{row_shard(rank) * share, (row_shard(rank) + 1) * share});
}

std::vector<int> Compiled::members(const program::Group& group, int rank) const {
  const auto takes_part = [&](int r) {
    return std::find(group.roles.begin(), group.roles.end(), seat(r).role) != group.roles.end();
  };
  // Coordinates along all other axes.
  const auto rest = [&](int r) {
    const ir::Mesh& own = role_of(r).module.mesh;
    const std::vector<int> at = coordinate(r);
    std::map<std::string, int> others;
    for (std::size_t a = 0; a < own.axes.size() && !group.axes.empty(); ++a)
      if (std::find(group.axes.begin(), group.axes.end(), own.axes[a].name) == group.axes.end())
        others[own.axes[a].name] = at[a];
    return others;
  };
  std::vector<int> met;
  if (!takes_part(rank)) return met;
  for (int r = 0; r < ranks(); ++r)
    if (takes_part(r) && rest(r) == rest(rank)) met.push_back(r);
  // In the order of the group's axes, which may be another than the mesh's: a gather over "tp+dp" begins with all of
  // the first place along tp. Ranks beyond the mesh have axes of their own, and stand as they are numbered.
  const auto has_all = [&](int r) {
    const ir::Mesh& own = role_of(r).module.mesh;
    return std::all_of(group.axes.begin(), group.axes.end(), [&](const std::string& name) {
      return std::any_of(own.axes.begin(), own.axes.end(), [&](const ir::Mesh::Axis& a) { return a.name == name; });
    });
  };
  const auto along = [&](int r) {
    const ir::Mesh& own = role_of(r).module.mesh;
    const std::vector<int> at = coordinate(r);
    std::vector<int> places;
    for (const std::string& axis : group.axes) places.push_back(at[own.index_of(axis)]);
    return places;
  };
  if (group.axes.size() > 1 && std::all_of(met.begin(), met.end(), has_all))
    std::stable_sort(met.begin(), met.end(), [&](int a, int b) { return along(a) < along(b); });
  return met;
}

const std::string& Compiled::step_program(std::int64_t step) const {
  if (steps.empty()) fail("nothing was compiled that does a step");
  const auto next = std::upper_bound(steps.begin() + 1, steps.end(), step,
                                     [](std::int64_t at, const StepProgram& program) { return at < program.from; });
  return (next - 1)->program;
}

std::vector<std::string> Compiled::step_programs() const {
  std::vector<std::string> names;
  for (const StepProgram& step : steps)
    if (std::find(names.begin(), names.end(), step.program) == names.end()) names.push_back(step.program);
  return names;
}

std::string Compiled::other_ranks() const {
  const int others = ranks() - mesh.ranks();
  if (others == 0) return {};
  const Role& last = roles.back();
  return fmt::format("{} {}{} ({})", others, last.kind, others == 1 ? "" : "s", last.exchange->pace());
}

bool Compiled::synchronous() const {
  return std::none_of(roles.begin(), roles.end(),
                      [](const Role& role) { return role.in_flight || (role.exchange && role.exchange->each); });
}

std::size_t Compiled::arena_bytes() const {
  std::size_t most = 0;
  for (const Role& role : roles) most = std::max(most, role.arena_bytes);
  return most;
}

std::size_t Compiled::tier_bytes(int tier) const {
  std::size_t most = 0;
  for (const Role& role : roles) most = std::max(most, role.tier_bytes[static_cast<std::size_t>(tier)]);
  return most;
}

std::vector<ir::State> Compiled::saved_states() const {
  std::vector<ir::State> saved;
  std::set<std::string> seen;
  for (const Role& role : roles)
    for (const ir::State& state : role.module.states)
      if (is_saved(state) && seen.insert(state.name).second) saved.push_back(state);
  return saved;
}

}  // namespace trireme::compiler
