#include "trireme/passes/bucket.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/collective/message.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Module;
using ir::Node;
using ir::ValueId;

// A collective that may go with others.
struct Candidate {
  std::size_t node;
  std::size_t ready;  // orders them: when the last of its operands is there
  std::size_t first;  // may stand no earlier than behind this many nodes of its graph,
  std::size_t last;   // and no later
  std::size_t bytes;
};

class Buckets {
 public:
  Buckets(Module& module, Graph& graph, const Bucket::Options& options)
      : module_(module), graph_(graph), options_(options), uses_(graph) {}

  void run() {
    find_origins();
    // Those on which others depend come first: where they go says where these may stand.
    std::map<std::pair<int, std::string>, std::vector<std::size_t>> kinds;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].op->traits.collective && !ops::is_message(*graph_.nodes[n].op) &&
          !ops::is_halo(*graph_.nodes[n].op) && !between_stages(n) && !gathers_values(graph_.nodes[n]))
        kinds[{origins_[n].depth, kind_of(n)}].push_back(n);
    gone_.assign(graph_.nodes.size(), false);
    for (const auto& [kind, nodes] : kinds) {
      std::vector<Candidate> candidates;
      candidates.reserve(nodes.size());
      for (const std::size_t n : nodes) candidates.push_back(candidate(n));
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.ready < b.ready; });
      fill(candidates);
    }
    rebuild();
  }

 private:
  // Stages have other collectives around those in which they meet: what goes together here might not there.
  bool between_stages(std::size_t n) const { return graph_.nodes[n].attributes.text("axis") == ir::kPipelineAxis; }

  // Collectives with the same text here can be one.
  std::string kind_of(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    std::string kind = fmt::format("{} {} {} {}", node.op->name, name_of(graph_.type(node.inputs.front()).dtype),
                                   ir::name_of(node.phase), node.stage);
    for (const auto& [name, value] : node.attributes)
      if (name != "rows") kind += fmt::format(" {}={}", name, ir::to_text(value));
    return kind;
  }

  std::size_t position(ValueId id) const {
    if (const auto moved = moved_.find(id); moved != moved_.end()) return moved->second;
    const std::int32_t producer = uses_.producer[static_cast<std::size_t>(id)];
    return producer == kNone ? 0 : static_cast<std::size_t>(producer) + 1;
  }

  // By state: when the micro-batch has added its last contribution to it, as a number of nodes.
  std::vector<std::size_t> find_summed() const {
    std::vector<std::size_t> summed(module_.states.size(), 0);
    const Graph* micro = module_.has_graph("micro") ? &module_.graph("micro") : nullptr;
    if (micro == nullptr || micro == &graph_) return summed;
    const ir::Uses uses(*micro);
    for (const ir::Write& write : micro->writes)
      if (write.mode == ir::Write::Mode::add) {
        std::size_t& ready = summed[static_cast<std::size_t>(write.state)];
        ready = std::max(ready, static_cast<std::size_t>(uses.producer[static_cast<std::size_t>(write.value)] + 1));
      }
    return summed;
  }

  // What a node follows from.
  struct Origin {
    std::size_t ready = 0;  // when the last sum that it depends on is there
    int depth = 0;          // collectives on the way to it
  };

  void find_origins() {
    const std::vector<std::size_t> summed = find_summed();
    for (const Node& node : graph_.nodes) {
      Origin origin;
      for (const ValueId id : node.inputs) {
        if (id == kNone) continue;
        if (graph_.value(id).kind == ir::ValueInfo::Kind::state)
          origin.ready = std::max(origin.ready, summed[static_cast<std::size_t>(graph_.value(id).state)]);
        const std::int32_t producer = uses_.producer[static_cast<std::size_t>(id)];
        if (producer == kNone) continue;
        const auto from = static_cast<std::size_t>(producer);
        origin.ready = std::max(origin.ready, origins_[from].ready);
        origin.depth =
            std::max(origin.depth, origins_[from].depth + (graph_.nodes[from].op->traits.collective ? 1 : 0));
      }
      origins_.push_back(origin);
    }
  }

  Candidate candidate(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    Candidate c{n, origins_[n].ready, 0, graph_.nodes.size(), 0};
    for (const ValueId id : node.inputs) c.first = std::max(c.first, position(id));
    if (graph_.name == "micro") c.ready = c.first;
    for (const ValueId id : node.outputs) {
      for (const std::int32_t consumer : uses_.consumers[static_cast<std::size_t>(id)])
        c.last = std::min(c.last, static_cast<std::size_t>(consumer));
      c.bytes += graph_.type(id).bytes();
    }
    for (const ValueId id : node.inputs) c.bytes = std::max(c.bytes, graph_.type(id).bytes());
    if (gathers_for_use(node)) c.ready = n;
    return c;
  }

  bool gathers_for_use(const Node& node) const {
    return node.op->name == ops::kAllGather && graph_.value(node.inputs.front()).kind == ir::ValueInfo::Kind::state &&
           !uses_.consumers[static_cast<std::size_t>(node.outputs.front())].empty();
  }

  // What is made whole again for the gradients is so for as short as can be.
  bool gathers_values(const Node& node) const {
    return graph_.name == "micro" && node.op->name == ops::kAllGather && node.phase != ir::Phase::forward &&
           graph_.value(node.inputs.front()).kind != ir::ValueInfo::Kind::state;
  }

  void fill(const std::vector<Candidate>& candidates) {
    std::vector<Candidate> bucket;
    std::size_t bytes = 0;
    std::size_t first = 0;
    std::size_t last = 0;
    const auto close = [&] {
      if (bucket.size() > 1) merge(bucket, first);
      bucket.clear();
    };
    for (const Candidate& c : candidates) {
      const std::size_t limit = gathers_for_use(graph_.nodes[c.node]) ? options_.gathered_for_use : options_.bytes;
      const bool fits = !bucket.empty() && bytes < limit && std::max(first, c.first) <= std::min(last, c.last);
      if (!fits) {
        close();
        bytes = 0;
        first = c.first;
        last = c.last;
      }
      bucket.push_back(c);
      bytes += c.bytes;
      first = std::max(first, c.first);
      last = std::min(last, c.last);
    }
    close();
  }

  // One node in place of several, as early as it may stand.
  void merge(const std::vector<Candidate>& bucket, std::size_t first) {
    Node merged = graph_.nodes[bucket.front().node];
    merged.inputs.clear();
    merged.outputs.clear();
    std::vector<std::int64_t> rows;
    for (const Candidate& c : bucket) {
      const Node& node = graph_.nodes[c.node];
      merged.inputs.insert(merged.inputs.end(), node.inputs.begin(), node.inputs.end());
      merged.outputs.insert(merged.outputs.end(), node.outputs.begin(), node.outputs.end());
      if (node.op->name == ops::kAllGather)
        for (const std::int64_t r : node.attributes.integers("rows")) rows.push_back(r);
      gone_[c.node] = true;
    }
    if (!rows.empty()) merged.attributes.set("rows", rows);
    // What is gathered for use stays where the first of them stood, or comes behind what the others gather.
    const bool for_use = gathers_for_use(graph_.nodes[bucket.front().node]);
    const std::size_t at = for_use ? std::max(bucket.front().node, first) : first;
    for (const ValueId id : merged.outputs) moved_[id] = at;
    inserted_[at].push_back(std::move(merged));
  }

  void rebuild() {
    if (inserted_.empty()) return;
    std::vector<Node> nodes;
    for (std::size_t n = 0; n <= graph_.nodes.size(); ++n) {
      if (const auto here = inserted_.find(n); here != inserted_.end())
        nodes.insert(nodes.end(), here->second.begin(), here->second.end());
      if (n < graph_.nodes.size() && !gone_[n]) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
  }

  Module& module_;
  Graph& graph_;
  const Bucket::Options& options_;
  ir::Uses uses_;
  std::vector<Origin> origins_;  // by node
  std::vector<bool> gone_;
  std::map<std::size_t, std::vector<Node>> inserted_;  // before which node
  std::map<ValueId, std::size_t> moved_;               // what is made there
};

}  // namespace

void Bucket::run(Module& module) const {
  for (ir::Graph& graph : module.graphs) Buckets(module, graph, options_).run();
}

}  // namespace trireme::passes
