#include "trireme/passes/stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/passes/chain.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

bool is_numbered(const std::string& layer) { return !layer.empty() && layer.back() >= '0' && layer.back() <= '9'; }

// The segments with which the model's layers begin.
std::vector<std::size_t> layer_begins(const Chain& chain) {
  std::vector<std::size_t> begins;
  std::string last;
  for (std::size_t s = 0; s < chain.segments.size(); ++s) {
    const std::string& layer = chain.segments[s].layer;
    if (!is_numbered(layer) || layer == last) continue;
    begins.push_back(s);
    last = layer;
  }
  return begins;
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
    }
  }

 private:
  void decide(Graph& graph) {
    const Chain chain = find_chain(graph);
    if (chain.segments.size() < index(options_.parts))
      refuse(
          "parallel.mesh: the model can be cut in {} parts at most, and the pipeline has {} (of interleaved:V, pp × "
          "V); the "
          "nearest is as many as that",
          chain.segments.size(), options_.parts);
    const std::vector<std::size_t> cuts = options_.layers.empty() ? by_cost(graph, chain) : by_layers(chain);
    std::int32_t part = 0;
    for (std::size_t s = 0; s < chain.segments.size(); ++s) {
      if (index(part) < cuts.size() && cuts[index(part)] == s) ++part;
      for (std::size_t i = chain.segments[s].begin; i < chain.segments[s].end; ++i)
        graph.nodes[index(chain.nodes[i])].stage = part;
    }
    const ir::Uses uses(graph);
    for (const Node& node : graph.nodes)
      for (const ValueId id : node.inputs)
        if (id != kNone && graph.value(id).kind == ir::ValueInfo::Kind::state)
          parts_of_[parameter(graph.value(id).state)].insert(node.stage);
    for (const ir::Write& write : graph.writes)
      if (const std::int32_t producer = uses.producer[index(write.value)]; producer != kNone)
        parts_of_[parameter(write.state)].insert(graph.nodes[index(producer)].stage);
  }

  std::vector<std::size_t> by_cost(const Graph& graph, const Chain& chain) const {
    const std::vector<double> starts = cost::start_times(graph, options_.rates);
    std::vector<double> costs;
    for (const Segment& segment : chain.segments) {
      double seconds = 0;
      for (std::size_t i = segment.begin; i < segment.end; ++i)
        seconds += starts[index(chain.nodes[i]) + 1] - starts[index(chain.nodes[i])];
      costs.push_back(seconds);
    }
    return balanced_cuts(costs, options_.parts);
  }

  // A part ends where the first layer of the next begins; what is before and behind all layers goes with the outermost.
  std::vector<std::size_t> by_layers(const Chain& chain) const {
    const std::vector<std::size_t> begins = layer_begins(chain);
    std::int64_t given = 0;
    for (const std::int64_t layers : options_.layers) given += layers;
    if (options_.layers.size() != index(options_.parts))
      refuse("parallel.stages lists {} numbers, and the pipeline has {} parts; the nearest is []",
             options_.layers.size(), options_.parts);
    if (given != std::ssize(begins))
      refuse("parallel.stages add up to {} layers, and the model has {} that can be cut apart; the nearest is []",
             given, begins.size());
    std::vector<std::size_t> cuts;
    std::int64_t before = 0;
    for (std::size_t part = 0; part + 1 < options_.layers.size(); ++part) {
      before += options_.layers[part];
      cuts.push_back(begins[index(static_cast<std::int32_t>(before))]);
    }
    return cuts;
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

std::int64_t count_layers(const Graph& graph) { return std::ssize(layer_begins(find_chain(graph))); }

std::vector<std::size_t> balanced_cuts(const std::vector<double>& costs, int parts) {
  const std::size_t count = costs.size();
  TRI_CHECK(parts >= 1 && count >= index(parts), "{} cannot be cut in {} parts", count, parts);
  std::vector<double> before(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) before[i + 1] = before[i] + costs[i];
  // The largest part of the first i in k parts, and where the last of these begins.
  std::vector<std::vector<double>> largest(index(parts) + 1,
                                           std::vector<double>(count + 1, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> from(index(parts) + 1, std::vector<std::size_t>(count + 1, 0));
  largest[0][0] = 0;
  for (std::size_t k = 1; k <= index(parts); ++k)
    for (std::size_t i = k; i <= count; ++i)
      for (std::size_t j = k - 1; j < i; ++j) {
        const double here = std::max(largest[k - 1][j], before[i] - before[j]);
        if (here < largest[k][i]) {
          largest[k][i] = here;
          from[k][i] = j;
        }
      }
  std::vector<std::size_t> cuts;
  std::size_t end = count;
  for (std::size_t k = index(parts); k > 1; --k) {
    end = from[k][end];
    cuts.push_back(end);
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

void Stage::run(ir::Module& module) const { Assigner(module, options_).run(); }

}  // namespace trireme::passes
