#include "trireme/passes/offload.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/pieces.h"
#include "trireme/passes/rebuild.h"
#include "trireme/passes/saved_values.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// Whose states are loaded piece by piece.
bool works_in_pieces(std::string_view graph) {
  return graph == "update" || graph == kWarmUpdate || graph == "init" || graph == "refresh" || is_state_graph(graph);
}

std::string_view plain_name(std::string_view value) { return value.starts_with('@') ? value.substr(1) : value; }

std::string reload_at(const Graph& graph, std::size_t node, ValueId state) {
  return reload_name(plain_name(graph.value(state).name), graph.value(graph.nodes[node].outputs.front()).name);
}

// Rewrites a graph so that it reads no state of the tier but by loads, and the gradients none of the values that leave.
class Loader {
 public:
  Loader(ir::Module& module, const std::string& graph, std::span<const std::string> leaving,
         const Offload::Options& options)
      : module_(module),
        options_(options),
        rebuild_(module, graph),
        storage_(storage_of(old())),
        reloads_(options.reloads.begin(), options.reloads.end()),
        view_of_(old().values.size(), kNone) {
    for (std::size_t n = 0; n < old().nodes.size(); ++n)
      if (old().nodes[n].op->traits.view)
        view_of_[index(old().nodes[n].outputs.front())] = static_cast<std::int32_t>(n);
    for (const Node& node : old().nodes)
      if (node.phase == ir::Phase::input_gradient)
        for (const ValueId id : node.inputs)
          if (id != kNone) read_early_.insert(storage_[index(id)]);
    if (leaving.empty()) return;
    std::unordered_map<std::string_view, ValueId> saved;
    for (const SavedValue& s : saved_values(old())) saved.emplace(old().value(s.value).name, s.value);
    for (const std::string& name : leaving) {
      const auto found = saved.find(name);
      if (found != saved.end())
        leaves_.insert(found->second);
      else if (!options.partial) {
        std::vector<std::string> names;
        for (const auto& [own, id] : saved) names.emplace_back(own);
        std::sort(names.begin(), names.end());
        refuse("'{}' is to be offloaded, and the backward pass reads no such value{}", name, nearest_text(name, names));
      }
    }
  }

  void run() {
    for (std::size_t n = 0; n < old().nodes.size(); ++n) {
      const Node& node = old().nodes[n];
      // Views are made again where they are read.
      if (node.op->traits.view && comes_back(node, node.inputs.front())) continue;
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs)
        inputs.push_back(id != kNone && comes_back(node, id) ? loaded(n, id) : rebuild_.mapped(id));
      rebuild_.add_like(node, inputs);
      for (const ValueId id : node.outputs)
        if (leaves_.contains(id))
          stored_[id] = rebuild_
                            .add(std::string(ops::kStore), {rebuild_.mapped(id)},
                                 {{"tier", std::int64_t{options_.tier}}}, old().value(id).name + ".store", node)
                            .front();
    }
    rebuild_.finish();
  }

 private:
  const Graph& old() const { return rebuild_.old(); }

  bool is_state(ValueId id) const { return old().value(id).kind == ir::ValueInfo::Kind::state; }

  // Whether what this node reads as `id` has to be loaded for it.
  bool comes_back(const Node& node, ValueId id) const {
    const ValueId root = storage_[index(id)];
    if (is_state(root)) return module_.state(old().value(root).state).tier != 0;
    return is_gradient(node.phase) && leaves_.contains(root);
  }

  struct Loaded {
    std::size_t last_use = 0;
    std::map<ValueId, ValueId> views;  // the value itself among them
  };

  // What not only weights' gradients read comes back in the order of the others: schedules may put those later.
  Node reader_of(std::size_t n, ValueId root) const {
    Node reader = old().nodes[n];
    if (reader.phase == ir::Phase::weight_gradient && read_early_.contains(root))
      reader.phase = ir::Phase::input_gradient;
    return reader;
  }

  ValueId loaded(std::size_t n, ValueId id) {
    const ValueId root = storage_[index(id)];
    const Node node = reader_of(n, root);
    Loaded& there = loaded_[root];
    if (is_state(root) && there.last_use < n && reloads_.contains(reload_at(old(), n, root))) there.views.clear();
    there.last_use = n;
    if (there.views.empty()) {
      const ValueId source = is_state(root) ? rebuild_.mapped(root) : stored_.at(root);
      there.views[root] = rebuild_
                              .add(std::string(ops::kLoad), {source}, {},
                                   std::string(plain_name(old().value(root).name)) + ".load", node)
                              .front();
    }
    return view(node, id, there);
  }

  ValueId view(const Node& reader, ValueId id, Loaded& there) {
    if (const auto known = there.views.find(id); known != there.views.end()) return known->second;
    const Node& made = old().nodes[index(view_of_[index(id)])];
    const ValueId from = view(reader, made.inputs.front(), there);
    return there.views[id] =
               rebuild_.add(made.op->name, {from}, made.attributes, old().value(id).name + ".view", reader).front();
  }

  ir::Module& module_;
  const Offload::Options& options_;
  Rebuild rebuild_;
  std::vector<ValueId> storage_;
  std::set<std::string, std::less<>> reloads_;
  std::vector<std::int32_t> view_of_;  // by value: the view node that makes it
  std::set<ValueId> leaves_;
  std::set<ValueId> read_early_;       // owners of bytes that inputs' gradients read
  std::map<ValueId, ValueId> stored_;  // old value → fresh store
  std::map<ValueId, Loaded> loaded_;   // by what owns the bytes
};

}  // namespace

std::string reload_name(std::string_view state, std::string_view value) {
  return fmt::format("{} before {}", state, value);
}

std::vector<OffloadedRead> offloaded_reads(const ir::Module& module, const Graph& graph,
                                           std::span<const std::string> states) {
  if (works_in_pieces(graph.name)) return {};
  const std::set<std::string_view> leaving(states.begin(), states.end());
  const std::vector<ValueId> storage = storage_of(graph);
  const auto is_away = [&](ValueId root) {
    if (graph.value(root).kind != ir::ValueInfo::Kind::state) return false;
    const ir::State& state = module.state(graph.value(root).state);
    return state.tier != 0 || leaving.contains(state.name);
  };
  std::vector<OffloadedRead> reads;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::set<ValueId> own;
    for (const ValueId id : node.inputs)
      if (id != kNone && is_away(storage[index(id)]) && !node.op->traits.view && own.insert(storage[index(id)]).second)
        reads.push_back({n, storage[index(id)]});
  }
  return reads;
}

void Offload::run(ir::Module& module) const {
  for (const std::string& name : options_.states) {
    const ir::StateId id = module.find_state(name);
    if (id != kNone)
      module.state(id).tier = options_.tier;
    else if (!options_.partial) {
      std::vector<std::string> names;
      for (const ir::State& state : module.states) names.push_back(state.name);
      refuse("'{}' is to be offloaded, and there is no such state{}", name, nearest_text(name, names));
    }
  }
  for (const std::string& reload : options_.reloads)
    if (std::none_of(options_.states.begin(), options_.states.end(),
                     [&](const std::string& state) { return reload.starts_with(reload_name(state, "")); }))
      refuse("'{}' names no state that is offloaded; a reload is written \"state before value\"", reload);
  std::vector<std::string> names;
  for (const Graph& graph : module.graphs) names.push_back(graph.name);
  for (const std::string& name : names) {
    const bool updates = name == "update" || name == kWarmUpdate;
    if (works_in_pieces(name))
      cut_in_pieces(module, name,
                    {.tier = options_.tier, .bytes = options_.piece, .on_host = options_.update_on_host && updates});
    else
      Loader(module, name, name == "micro" ? options_.activations : std::vector<std::string>{}, options_).run();
  }
}

}  // namespace trireme::passes
