#include "trireme/passes/dimension_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace trireme::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::ValueId;

// The dimensions of all values of a graph, joined where they go together.
class Dimensions {
 public:
  explicit Dimensions(const ir::Graph& graph) : graph_(graph) {
    for (const ir::ValueInfo& value : graph.values) {
      first_.push_back(parent_.size());
      parent_.resize(parent_.size() + index(value.type.shape.rank()));
    }
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    marks_.resize(parent_.size());
  }

  struct Marks {
    bool whole = false;   // may lose no slices
    bool made = false;    // by a state
    bool summed = false;  // over, with a state
    bool heads = false;
    bool channels = false;
  };

  std::size_t at(ValueId value, int dim) const { return first_[index(value)] + index(dim); }
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  Marks& marks(std::size_t i) { return marks_[root(i)]; }
  void join(std::size_t a, std::size_t b) {
    a = root(a);
    b = root(b);
    if (a == b) return;
    parent_[b] = a;
    Marks& m = marks_[a];
    const Marks& n = marks_[b];
    m = {m.whole || n.whole, m.made || n.made, m.summed || n.summed, m.heads || n.heads, m.channels || n.channels};
  }

  void mark_whole(ValueId id) {
    for (int d = 0; d < graph_.type(id).shape.rank(); ++d) marks(at(id, d)).whole = true;
  }

 private:
  const ir::Graph& graph_;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> parent_;
  std::vector<Marks> marks_;
};

void join_node(const ir::Graph& graph, const ir::Node& node, Dimensions& dimensions) {
  const ir::Factors factors = node.op->factors(graph.input_types(node), graph.output_types(node), node.attributes);
  std::vector<std::vector<std::size_t>> where(factors.factors.size());
  std::vector<bool> in_output(factors.factors.size(), false);
  const auto collect = [&](const std::vector<ValueId>& ids, const std::vector<std::vector<int>>& lists, bool output) {
    for (std::size_t i = 0; i < ids.size() && i < lists.size(); ++i)
      for (std::size_t d = 0; ids[i] != kNone && d < lists[i].size(); ++d) {
        const auto f = index(lists[i][d]);
        where[f].push_back(dimensions.at(ids[i], static_cast<int>(d)));
        in_output[f] = in_output[f] || output;
      }
  };
  collect(node.inputs, factors.inputs, false);
  collect(node.outputs, factors.outputs, true);
  for (std::size_t f = 0; f < where.size(); ++f) {
    for (const std::size_t other : where[f]) dimensions.join(where[f].front(), other);
    if (where[f].empty()) continue;
    using Kind = ir::Factor::Kind;
    Dimensions::Marks& marks = dimensions.marks(where[f].front());
    marks.whole = marks.whole || factors.factors[f].kind == Kind::whole || factors.factors[f].kind == Kind::halo;
    marks.heads = marks.heads || node.op->name == "attention";
    marks.channels = marks.channels || node.op->name == "conv2d";
    for (std::size_t i = 0; i < node.inputs.size() && i < factors.inputs.size(); ++i)
      if (node.inputs[i] != kNone && graph.value(node.inputs[i]).kind == ir::ValueInfo::Kind::state)
        for (const int own : factors.inputs[i])
          if (index(own) == f) (in_output[f] ? marks.made : marks.summed) = true;
  }
}

}  // namespace

const char* name_of(DimensionGroup::Kind kind) {
  switch (kind) {
    case DimensionGroup::Kind::heads: return "heads";
    case DimensionGroup::Kind::neurons: return "neurons";
    case DimensionGroup::Kind::channels: break;
  }
  return "channels";
}

std::vector<DimensionGroup> dimension_groups(const ir::Module& module, const ir::Graph& graph) {
  Dimensions dimensions(graph);
  for (const ir::Node& node : graph.nodes) join_node(graph, node, dimensions);
  for (const ValueId id : graph.inputs) dimensions.mark_whole(id);
  for (const ir::Output& output : graph.outputs) dimensions.mark_whole(output.value);

  std::map<std::size_t, std::vector<std::pair<ValueId, int>>> members;  // by class, of states
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].kind == ir::ValueInfo::Kind::state)
      for (int d = 0; d < graph.values[v].type.shape.rank(); ++d)
        members[dimensions.root(dimensions.at(static_cast<ValueId>(v), d))].emplace_back(static_cast<ValueId>(v), d);
  std::vector<std::pair<ir::StateId, DimensionGroup>> found;
  for (auto& [root, own] : members) {
    const Dimensions::Marks& marks = dimensions.marks(root);
    if (marks.whole || !marks.made || !marks.summed) continue;
    std::sort(own.begin(), own.end(),
              [&](const auto& a, const auto& b) { return graph.value(a.first).state < graph.value(b.first).state; });
    DimensionGroup group;
    group.kind = marks.heads      ? DimensionGroup::Kind::heads
                 : marks.channels ? DimensionGroup::Kind::channels
                                  : DimensionGroup::Kind::neurons;
    const auto extent = [&](const auto& member) { return graph.type(member.first).shape[member.second]; };
    group.slices = extent(own.front());
    for (const auto& member : own) group.slices = std::min(group.slices, extent(member));
    const bool divides =
        std::all_of(own.begin(), own.end(), [&](const auto& member) { return extent(member) % group.slices == 0; });
    if (!divides || group.slices < 2) continue;
    for (const auto& member : own) {
      const ir::State& state = module.state(graph.value(member.first).state);
      group.members.push_back({state.name, member.second, extent(member) / group.slices, state.trained});
    }
    found.emplace_back(graph.value(own.front().first).state, std::move(group));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DimensionGroup> groups;
  for (auto& [state, group] : found) groups.push_back(std::move(group));
  return groups;
}

}  // namespace trireme::passes
