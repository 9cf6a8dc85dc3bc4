#include "trireme/planner/offload_policy.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/passes/offload.h"
#include "trireme/passes/saved_values.h"

namespace trireme::planner {
namespace {

using cost::Rates;
using ir::Graph;
using ir::index;
using ir::Node;
using ir::State;
using ir::ValueId;
using passes::SavedValue;

bool is_convolution(const Node& node) { return node.op->name == "conv2d"; }

std::vector<SavedValue> read_by_convolutions(const Graph& graph, std::vector<SavedValue> saved) {
  const std::vector<ValueId> storage = passes::storage_of(graph);
  std::set<ValueId> read;
  for (const Node& node : graph.nodes)
    if (is_convolution(node)) read.insert(storage[index(node.inputs.front())]);
  std::erase_if(saved, [&](const SavedValue& s) { return !read.contains(s.value); });
  return saved;
}

// Whether the computation hides the copies of all these values, given by the order they are made in: each is stored
// before it has to be loaded again, and is gone for a while in between.
bool hidden(const std::vector<const SavedValue*>& values, const Graph& graph, const std::vector<double>& starts,
            const Rates& rates) {
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
std::vector<SavedValue> worth_moving(const Graph& graph, const std::vector<SavedValue>& saved, const Rates& rates,
                                     std::optional<std::size_t> count) {
  const std::vector<double> starts = cost::start_times(graph, rates);
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
    if (hidden(in_order, graph, starts, rates)) {
      chosen.push_back(candidate);
    } else {
      in_order.erase(added);
      rest.push_back(candidate);
    }
  }
  if (count) {
    chosen.insert(chosen.end(), rest.begin(), rest.end());
    chosen.resize(std::min(chosen.size(), *count));
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<SavedValue> values;
  values.reserve(chosen.size());
  for (const SavedValue* s : chosen) values.push_back(*s);
  return values;
}

}  // namespace

std::vector<std::string> activations_to_offload(const Graph& graph, const OffloadPolicy& policy,
                                                std::optional<std::size_t> count) {
  std::vector<SavedValue> saved = passes::saved_values(graph);
  std::erase_if(saved, [&](const SavedValue& s) { return graph.type(s.value).bytes() < policy.smallest; });
  switch (policy.which) {
    case OffloadPolicy::Which::conv: saved = read_by_convolutions(graph, std::move(saved)); break;
    case OffloadPolicy::Which::dynamic: saved = worth_moving(graph, saved, policy.rates, count); break;
    case OffloadPolicy::Which::all: break;
  }
  std::vector<std::string> names;
  names.reserve(saved.size());
  for (const SavedValue& s : saved) names.push_back(graph.value(s.value).name);
  return names;
}

void check_offload_policy(const ir::Graph& graph, const OffloadPolicy& policy) {
  if (!policy.activations || policy.which != OffloadPolicy::Which::conv) return;
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_convolution))
    refuse("memory.offload_policy = \"conv\": this model has no convolution; the nearest is \"dynamic\", or \"all\"");
}

std::vector<std::string> states_to_offload(const ir::Module& module, const OffloadPolicy& policy,
                                           std::optional<std::size_t> parameters) {
  std::set<std::string> has_copy;
  for (const State& state : module.states)
    if (!state.derived_from.empty()) has_copy.insert(state.derived_from);
  const auto parameter = [&](const State& state) {
    // Weights that are only read are not saved.
    const bool read = state.category == ir::Category::weights && !state.saved && state.derived_from.empty();
    return state.trained || read ||
           (!state.derived_from.empty() && module.state(module.find_state(state.derived_from)).trained);
  };
  std::map<std::string, std::size_t> place;  // of parameters
  std::vector<std::string> names;
  for (const State& state : module.states) {
    if (state.type.bytes() < policy.smallest || state.type.shape.rank() == 0) continue;
    const bool master = state.trained && has_copy.contains(state.name);
    const bool leaves =
        (policy.weights && parameter(state)) ||
        (policy.optimizer && (state.category == ir::Category::optimizer || master)) ||
        (policy.weights && policy.optimizer && policy.gradients && state.category == ir::Category::gradients);
    if (!leaves) continue;
    const std::size_t at = place.try_emplace(state.name.substr(0, state.name.find('/')), place.size()).first->second;
    if (!parameters || at < *parameters) names.push_back(state.name);
  }
  return names;
}

std::vector<std::string> states_to_reload(const ir::Module& module, std::span<const std::string> states,
                                          const Rates& rates) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Graph& graph : module.graphs) {
    const std::vector<passes::OffloadedRead> reads = passes::offloaded_reads(module, graph, states);
    if (reads.empty()) continue;
    const std::vector<double> starts = cost::start_times(graph, rates);
    std::map<ir::ValueId, std::size_t> last;
    for (const auto& [node, state] : reads) {
      const auto [before, first] = last.try_emplace(state, node);
      // Two copies' time each way.
      const double away = 4 * rates.move_seconds(graph.type(state).bytes());
      if (!first && starts[node] - starts[before->second + 1] > away) {
        const std::string name = passes::reload_name(module.state(graph.value(state).state).name,
                                                     graph.value(graph.nodes[node].outputs.front()).name);
        if (known.insert(name).second) names.push_back(name);
      }
      before->second = node;
    }
  }
  return names;
}

}  // namespace trireme::planner
