#include "trireme/passes/stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/chain.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

[[noreturn]] void refuse_cut(const Graph& graph, const std::vector<std::string>& names, const std::string& cut) {
  const std::vector<std::string> behind(names.begin() + std::min<std::ptrdiff_t>(1, std::ssize(names)), names.end());
  const bool known = std::any_of(graph.values.begin(), graph.values.end(),
                                 [&](const ir::ValueInfo& value) { return value.name == cut; });
  const auto near = nearest(cut, behind);
  refuse("a part of the pipeline cannot begin with '{}': {}{}", cut,
         known ? "more than one tensor goes on from what is before it, and no layer begins there"
               : "the model has no such value",
         near ? fmt::format("; the nearest that can is '{}'", *near) : "");
}

class Assigner {
 public:
  Assigner(ir::Module& module, const Stage::Options& options) : module_(module), options_(options) {}

  void run() {
    bool decided = false;
    for (const std::string& name : options_.graphs) {
      if (!module_.has_graph(name)) continue;
      Graph& graph = module_.graph(name);
      decided ? follow(graph) : decide(graph);
      decided = true;
      // Parts come one after the other. What has moved comes with its part, and so does a node that follows its
      // operands into a part whose neighbours in the list are of a later one: what several parts read is made for the
      // first.
      std::stable_sort(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& a, const Node& b) { return a.stage < b.stage; });
    }
  }

 private:
  void decide(Graph& graph) {
    const Chain chain = find_stage_chain(graph, free_values(module_, graph));
    const std::vector<std::size_t> cuts = Stage::find_cuts(graph, chain, options_.parts, options_.cuts);
    std::int32_t part = 0;
    for (std::size_t s = 0; s < chain.segments.size(); ++s) {
      if (index(part) < cuts.size() && cuts[index(part)] == s) ++part;
      for (std::size_t i = chain.segments[s].begin; i < chain.segments[s].end; ++i)
        graph.nodes[index(chain.nodes[i])].stage = part;
    }
    move_to_readers(graph);
    const ir::Uses uses(graph);
    for (const Node& node : graph.nodes)
      for (const ValueId id : node.inputs)
        if (id != kNone && graph.value(id).kind == ir::ValueInfo::Kind::state)
          parts_of_[parameter(graph.value(id).state)].insert(node.stage);
    for (const ir::Write& write : graph.writes)
      if (const std::int32_t producer = uses.producer[index(write.value)]; producer != kNone)
        parts_of_[parameter(write.state)].insert(graph.nodes[index(producer)].stage);
  }

  // Where a cut comes between what is made of states and its first reader, the gradient would have to go back over it.
  void move_to_readers(Graph& graph) {
    const std::vector<bool> of_states = made_of_states(graph);
    constexpr std::int32_t kUnread = std::numeric_limits<std::int32_t>::max();
    std::vector<std::int32_t> first(graph.values.size(), kUnread);  // part that reads it
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
      std::int32_t reader = kUnread;
      for (const ValueId id : node->outputs) reader = std::min(reader, first[index(id)]);
      if (reader != kUnread && of_states[index(node->outputs.front())]) node->stage = reader;
      for (const ValueId id : node->inputs)
        if (id != kNone) first[index(id)] = std::min(first[index(id)], node->stage);
    }
  }

  void follow(Graph& graph) {
    const ir::Uses uses(graph);
    for (Node& node : graph.nodes) {
      std::int32_t part = 0;
      for (const ValueId id : node.inputs)
        if (id != kNone && uses.producer[index(id)] != kNone)
          part = std::max(part, graph.nodes[index(uses.producer[index(id)])].stage);
      for (const ValueId id : node.inputs) {
        if (id == kNone || graph.value(id).kind != ir::ValueInfo::Kind::state) continue;
        const auto known = parts_of_.find(parameter(graph.value(id).state));
        if (known == parts_of_.end()) continue;
        const auto at = known->second.lower_bound(part);
        if (at == known->second.end())
          fail("'{}' of graph '{}' reads '{}', which no part from {} on has", graph.value(node.outputs.front()).name,
               graph.name, graph.value(id).name, part);
        part = *at;
      }
      node.stage = part;
    }
  }

  // By which copies are known too.
  const std::string& parameter(ir::StateId id) const {
    const ir::State& state = module_.state(id);
    return state.derived_from.empty() ? state.name : state.derived_from;
  }

  ir::Module& module_;
  const Stage::Options& options_;
  std::map<std::string, std::set<std::int32_t>> parts_of_;  // by state
};

}  // namespace

void Stage::run(ir::Module& module) const { Assigner(module, options_).run(); }

std::vector<std::size_t> Stage::find_cuts(const ir::Graph& graph, const Chain& chain, int parts,
                                          const std::vector<std::string>& all) {
  if (all.size() + 1 != index(parts))
    refuse("the pipeline has {} parts, and {} values are named with which those behind the first begin", parts,
           all.size());
  std::vector<std::string> names;  // by segment
  for (const Segment& segment : chain.segments) names.push_back(first_value(graph, chain, segment));
  std::vector<std::size_t> cuts;
  std::size_t from = 1;
  for (const std::string& cut : all) {
    const auto found = std::find(names.begin(), names.end(), cut);
    const auto at = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || at == 0) refuse_cut(graph, names, cut);
    if (at < from)
      refuse("a part of the pipeline begins with '{}', which comes {} '{}', with which the part before it begins", cut,
             at + 1 == from ? "with" : "before", all[cuts.size() - 1]);
    cuts.push_back(at);
    from = at + 1;
  }
  return cuts;
}

}  // namespace trireme::passes
