#include "trireme/cli/inspect_sharding.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/train/compile.h"
#include "trireme/train/sharding.h"

namespace trireme::cli {
namespace {

using passes::Propagate;

struct Sharded {
  Propagate::Place place;
  TensorType type;
  ir::Sharding sharding;
};

std::vector<Sharded> all_of(const ir::Module& module) {
  std::vector<Sharded> all;
  for (const ir::State& state : module.states) all.push_back({{"", "@" + state.name}, state.type, state.sharding});
  for (const ir::Graph& graph : module.graphs)
    for (const ir::ValueInfo& value : graph.values)
      if (value.kind != ir::ValueInfo::Kind::state)
        all.push_back({{graph.name, "%" + value.name}, value.type, value.sharding});
  return all;
}

std::string named(const Propagate::Place& place) {
  return place.first.empty() ? place.second : fmt::format("{} in {}", place.second, place.first);
}

// From the value back to the annotation, for one axis.
std::string chain(const Propagate::Reasons& reasons, Propagate::Place place, const std::string& axis) {
  std::string text;
  std::set<Propagate::Place> seen;
  while (seen.insert(place).second) {
    const auto found = reasons.find(place);
    if (found == reasons.end()) break;
    const auto reason = std::find_if(found->second.begin(), found->second.end(),
                                     [&](const Propagate::Reason& r) { return r.axis == axis; });
    if (reason == found->second.end()) break;
    const bool given = reason->from.second.empty();
    text += given ? fmt::format("    {}: {}\n", axis, reason->text)
                  : fmt::format("    {}: from {}, {}\n", axis, named(reason->from), reason->text);
    if (given) break;
    place = reason->from;
  }
  return text;
}

// Bytes that a rank sends, by a ring.
double sent_bytes(const ir::Graph& graph, const ir::Node& node) {
  if (ops::is_halo(*node.op)) {
    const ops::Halo halo(node.attributes);
    const std::int64_t rows = node.op->name == ops::kHaloReduce ? halo.rows_taken() : halo.rows_given();
    return static_cast<double>(rows) *
           static_cast<double>(ops::halo_row_bytes(graph.type(node.inputs.front()), halo.dim));
  }
  const auto parts = static_cast<double>(node.attributes.integer("parts"));
  double bytes = 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const auto in = static_cast<double>(graph.type(node.inputs[i]).bytes());
    if (node.op->name == ops::kAllReduce)
      bytes += 2 * (parts - 1) / parts * in;
    else
      bytes += node.op->name == ops::kAllGather ? (parts - 1) * in : (parts - 1) / parts * in;
  }
  return bytes;
}

// The op that wants the result, past the copies that only bring it into shape.
std::string purpose(const ir::Graph& graph, const ir::Uses& uses, ir::ValueId value) {
  for (int steps = 0; steps < 8; ++steps) {
    const auto& consumers = uses.consumers[ir::index(value)];
    if (consumers.empty()) return "the state or output that it is written to";
    const ir::Node& node = graph.nodes[ir::index(consumers.front())];
    const bool shape_only = node.op->traits.view || node.op->name == "transpose";
    if (!shape_only) return fmt::format("{} %{}", node.op->name, graph.value(node.outputs.front()).name);
    value = node.outputs.front();
  }
  return "";
}

// "down.weight" of "blocks.0.mlp.down.weight" where one point is asked for.
std::string last_parts(const std::string& name, std::ptrdiff_t points) {
  std::size_t at = name.size();
  for (std::ptrdiff_t i = 0; i <= points; ++i) {
    if (at == 0) return name;
    at = name.rfind('.', at - 1);
    if (at == std::string::npos) return name;
  }
  return name.substr(at + 1);
}

}  // namespace

std::string explained_sharding(const train::Config& config, const train::Registry& registry,
                               const std::string& pattern) {
  const train::ExplainedSharding explained = train::explain_sharding(config, registry);
  const bool sigil = pattern.starts_with('%') || pattern.starts_with('@');
  std::string text;
  std::vector<std::string> names;
  for (const Sharded& s : all_of(explained.module)) {
    names.push_back(s.place.second.substr(1));
    if (!passes::matches_pattern(pattern, sigil ? s.place.second : s.place.second.substr(1))) continue;
    text += fmt::format("{} {}: {}\n", named(s.place), s.type.str(),
                        s.sharding.replicated() ? "every rank has all of it" : s.sharding.str());
    for (const ir::Mesh::Axis& axis : explained.module.mesh.axes) text += chain(explained.reasons, s.place, axis.name);
  }
  if (!text.empty()) return text;
  // Of "*.name" the nearest is one of the names' ends.
  const std::string_view any = pattern.starts_with("*.") ? "*." : "";
  const std::string given = pattern.substr(any.size());
  if (!any.empty())
    for (std::string& name : names) name = last_parts(name, std::count(given.begin(), given.end(), '.'));
  const auto near = nearest(given, names);
  refuse("--explain {}: no parameter, input or value has such a name{}", pattern,
         near ? fmt::format("; the nearest is {}{}", any, *near) : "");
}

std::string collectives_table(const train::Role& role) {
  std::string text;
  for (const ir::Graph& graph : role.module.graphs) {
    const ir::Uses uses(graph);
    double total = 0;
    std::string rows;
    for (const ir::Node& node : graph.nodes) {
      if (!node.op->traits.collective || node.attributes.find("parts") == nullptr) continue;
      const double bytes = sent_bytes(graph, node);
      total += bytes;
      const std::string more = node.inputs.size() > 1 ? fmt::format(" and {} more", node.inputs.size() - 1) : "";
      rows += fmt::format("  {:<15} {:<6} {:>13} B  {}{} for {}\n", node.op->name, node.attributes.text("axis"),
                          format_count(static_cast<std::uint64_t>(bytes)), graph.value(node.outputs.front()).name, more,
                          purpose(graph, uses, node.outputs.front()));
    }
    if (!rows.empty())
      text += fmt::format("graph {}: a rank sends {} B\n{}", graph.name,
                          format_count(static_cast<std::uint64_t>(total)), rows);
  }
  return text.empty() ? "no collectives: one rank, or none that exchanges anything\n" : text;
}

}  // namespace trireme::cli
