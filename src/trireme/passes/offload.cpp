#include "trireme/passes/offload.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/passes/pieces.h"
#include "trireme/passes/rebuild.h"
#include "trireme/passes/saved_values.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::State;
using ir::ValueId;

// When each node starts, as if nothing had to be waited for; and when the last one ends.
std::vector<double> start_times(const Graph& graph, const CostRates& rates) {
  std::vector<double> starts = {0};
  for (const Node& node : graph.nodes) {
    double seconds = 0;
    if (!node.op->traits.view)
      seconds =
          rates.compute_seconds(node.op->cost(graph.input_types(node), graph.output_types(node), node.attributes));
    starts.push_back(starts.back() + seconds);
  }
  return starts;
}

bool large(const Graph& graph, ValueId id, const Offload::Options& options) {
  return graph.type(id).bytes() >= options.smallest;
}

std::vector<SavedValue> large_saved_values(const Graph& graph, const Offload::Options& options) {
  std::vector<SavedValue> saved = saved_values(graph);
  std::erase_if(saved, [&](const SavedValue& s) { return !large(graph, s.value, options); });
  return saved;
}

std::vector<SavedValue> read_by_convolutions(const Graph& graph, std::vector<SavedValue> saved) {
  const std::vector<ValueId> storage = storage_of(graph);
  std::set<ValueId> read;
  bool any = false;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "conv2d") continue;
    any = true;
    read.insert(storage[index(node.inputs.front())]);
  }
  if (!any) refuse("memory.offload_policy = \"conv\": this model has no convolution; \"all\" and \"dynamic\" apply");
  std::erase_if(saved, [&](const SavedValue& s) { return !read.contains(s.value); });
  return saved;
}

// Whether the computation hides the copies of all these values, given by the order they are made in: each is stored
// before it has to be loaded again, and is gone for a while in between.
bool hidden(const std::vector<const SavedValue*>& values, const Graph& graph, const std::vector<double>& starts,
            const CostRates& rates) {
  std::vector<double> stored(values.size());
  double free = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    stored[i] = free = std::max(free, starts[index(values[i]->producer) + 1]) +
                       rates.move_seconds(graph.type(values[i]->value).bytes());
  std::vector<std::size_t> by_reader(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) by_reader[i] = i;
  std::stable_sort(by_reader.begin(), by_reader.end(), [&](std::size_t a, std::size_t b) {
    return values[a]->readers.front() > values[b]->readers.front();
  });
  double next = starts.back();
  for (const std::size_t i : by_reader) {
    next = std::min(next, starts[index(values[i]->readers.front())]) -
           rates.move_seconds(graph.type(values[i]->value).bytes());
    if (next < std::max(stored[i], starts[index(values[i]->last_forward) + 1])) return false;
  }
  return true;
}

// Largest bytes × time away first: those that the computation hides together, and then, if more are asked for, the
// rest.
std::vector<SavedValue> worth_moving(const Graph& graph, const std::vector<SavedValue>& saved,
                                     const Offload::Options& options) {
  const std::vector<double> starts = start_times(graph, options.rates);
  const auto worth = [&](const SavedValue& s) {
    return static_cast<double>(graph.type(s.value).bytes()) *
           (starts[index(s.readers.front())] - starts[index(s.last_forward) + 1]);
  };
  std::vector<const SavedValue*> candidates;
  candidates.reserve(saved.size());
  for (const SavedValue& s : saved) candidates.push_back(&s);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const SavedValue* a, const SavedValue* b) { return worth(*a) > worth(*b); });
  std::vector<const SavedValue*> chosen;
  std::vector<const SavedValue*> in_order;  // the same, in the order they are made
  std::vector<const SavedValue*> rest;
  for (const SavedValue* candidate : candidates) {
    const auto added = in_order.insert(std::upper_bound(in_order.begin(), in_order.end(), candidate), candidate);
    if (hidden(in_order, graph, starts, options.rates)) {
      chosen.push_back(candidate);
    } else {
      in_order.erase(added);
      rest.push_back(candidate);
    }
  }
  if (options.most) {
    chosen.insert(chosen.end(), rest.begin(), rest.end());
    chosen.resize(std::min(chosen.size(), *options.most));
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<SavedValue> values;
  values.reserve(chosen.size());
  for (const SavedValue* s : chosen) values.push_back(*s);
  return values;
}

std::vector<SavedValue> leaving(const Graph& graph, const Offload::Options& options) {
  std::vector<SavedValue> saved = large_saved_values(graph, options);
  switch (options.policy) {
    case Offload::Policy::conv: return read_by_convolutions(graph, std::move(saved));
    case Offload::Policy::dynamic: return worth_moving(graph, saved, options);
    case Offload::Policy::all: break;
  }
  return saved;
}

// Which states live in the tier.
void move_states(ir::Module& module, const Offload::Options& options) {
  std::set<std::string> has_copy;
  for (const State& state : module.states)
    if (!state.derived_from.empty()) has_copy.insert(state.derived_from);
  const auto parameter = [&](const State& state) {
    return state.trained ||
           (!state.derived_from.empty() && module.state(module.find_state(state.derived_from)).trained);
  };
  std::map<std::string, std::size_t> place;  // of parameters
  for (State& state : module.states) {
    if (state.type.bytes() < options.smallest || state.type.shape.rank() == 0) continue;
    const bool master = state.trained && has_copy.contains(state.name);
    const bool leaves = (options.weights && parameter(state)) ||
                        (options.optimizer && (state.category == ir::Category::optimizer || master)) ||
                        (options.weights && options.optimizer && state.category == ir::Category::gradients);
    if (!leaves) continue;
    const std::size_t at = place.try_emplace(state.name.substr(0, state.name.find('/')), place.size()).first->second;
    if (!options.most_parameters || at < *options.most_parameters) state.tier = options.tier;
  }
}

// Rewrites a graph so that it reads no state of the tier but by loads, and the gradients none of the values that leave.
class Loader {
 public:
  Loader(ir::Module& module, const std::string& graph, std::vector<SavedValue> saved, const Offload::Options& options)
      : module_(module),
        options_(options),
        rebuild_(module, graph),
        saved_(std::move(saved)),
        storage_(storage_of(old())),
        starts_(start_times(old(), options.rates)),
        view_of_(old().values.size(), kNone) {
    for (std::size_t n = 0; n < old().nodes.size(); ++n)
      if (old().nodes[n].op->traits.view)
        view_of_[index(old().nodes[n].outputs.front())] = static_cast<std::int32_t>(n);
    for (const SavedValue& s : saved_) leaves_.insert(s.value);
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

  ValueId loaded(std::size_t n, ValueId id) {
    const Node& node = old().nodes[n];
    const ValueId root = storage_[index(id)];
    Loaded& there = loaded_[root];
    // A state that will not be used for long is loaded again rather than kept.
    const double away = 4 * options_.rates.move_seconds(old().type(root).bytes());
    if (is_state(root) && !there.views.empty() && starts_[n] - starts_[there.last_use + 1] > away) there.views.clear();
    there.last_use = n;
    if (there.views.empty()) {
      const std::string name = old().value(root).name;
      const ValueId source = is_state(root) ? rebuild_.mapped(root) : stored_.at(root);
      there.views[root] = rebuild_
                              .add(std::string(ops::kLoad), {source}, {},
                                   (name.starts_with('@') ? name.substr(1) : name) + ".load", node)
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
  std::vector<SavedValue> saved_;
  std::vector<ValueId> storage_;
  std::vector<double> starts_;
  std::vector<std::int32_t> view_of_;  // by value: the view node that makes it
  std::set<ValueId> leaves_;
  std::map<ValueId, ValueId> stored_;  // old value → fresh store
  std::map<ValueId, Loaded> loaded_;   // by what owns the bytes
};

}  // namespace

void Offload::run(ir::Module& module) const {
  if (options_.weights || options_.optimizer) move_states(module, options_);
  std::vector<std::string> names;
  for (const Graph& graph : module.graphs) names.push_back(graph.name);
  for (const std::string& name : names) {
    if (name == "update" || name == "init" || name == "derive") {
      cut_in_pieces(
          module, name,
          {.tier = options_.tier, .bytes = options_.piece, .on_host = options_.update_on_host && name == "update"});
      continue;
    }
    std::vector<SavedValue> saved;
    if (options_.activations && name == "micro") saved = leaving(module.graph(name), options_);
    Loader(module, name, std::move(saved), options_).run();
  }
}

}  // namespace trireme::passes
