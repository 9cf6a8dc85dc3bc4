#include "trireme/passes/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/core/text.h"
#include "trireme/ops/collective/message.h"
#include "trireme/passes/saved_values.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::ValueId;

// For each value, how many forward nodes are yet to read its bytes.
std::vector<int> forward_reads(const Graph& graph, const std::vector<ValueId>& storage) {
  std::vector<int> reads(graph.values.size(), 0);
  for (const Node& node : graph.nodes)
    if (node.phase == ir::Phase::forward && !ops::sends_or_receives(*node.op))
      for (const ValueId id : node.inputs)
        if (id != kNone) ++reads[index(storage[index(id)])];
  return reads;
}

bool numeric(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "blocks.3", "stages.0.1": layers of which a model has a row.
bool is_in_row(const std::string& layer) {
  const std::size_t dot = layer.rfind('.');
  return dot != std::string::npos && numeric(layer.substr(dot + 1));
}

// Of the forward nodes, in order: where a layer of a row begins behind another.
class LayerBegins {
 public:
  bool operator()(const std::string& layer) {
    if (!is_in_row(layer) || seen_.contains(layer)) return false;
    // What is named after a layer, as a projection to a teacher's, belongs to it.
    for (const std::string& known : seen_)
      if (layer.ends_with("." + known)) return false;
    seen_.insert(layer);
    return seen_.size() > 1;
  }

 private:
  std::set<std::string> seen_;
};

// "blocks.3", "fc1", and not "add#1", which is the second of its name.
bool is_numbered(const std::string& layer) {
  return !layer.empty() && layer.back() >= '0' && layer.back() <= '9' && layer.find('#') == std::string::npos;
}

}  // namespace

std::vector<bool> made_of_states(const Graph& graph) {
  std::vector<bool> of_states(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    of_states[v] = graph.values[v].kind == ir::ValueInfo::Kind::state;
  for (const Node& node : graph.nodes)
    if (!node.inputs.empty() && std::all_of(node.inputs.begin(), node.inputs.end(),
                                            [&](ValueId id) { return id == kNone || of_states[index(id)]; }))
      for (const ValueId id : node.outputs) of_states[index(id)] = true;
  return of_states;
}

std::string layer_of(const std::string& value_name) {
  const std::vector<std::string> parts = split(value_name, '.');
  const auto number = std::find_if(parts.begin(), parts.end(), numeric);
  const auto end = number == parts.end() ? parts.begin() + 1 : std::find_if_not(number, parts.end(), numeric);
  return fmt::format("{}", fmt::join(parts.begin(), end, "."));
}

bool is_cheap(const Graph& graph, const Node& node) {
  if (node.op->traits.view) return true;
  if (node.op->traits.collective) return false;
  const ir::Types inputs = graph.input_types(node);
  const ir::Types outputs = graph.output_types(node);
  const ir::Cost cost = node.op->cost(inputs, outputs, node.attributes);
  // Below this every machine we know of waits for memory.
  constexpr double kFlopsPerByte = 8;
  return cost.flops <= kFlopsPerByte * (cost.bytes_read + cost.bytes_written);
}

std::vector<bool> free_values(const ir::Module& module, const Graph& graph) {
  std::vector<bool> trained(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ir::ValueInfo::Kind::state) continue;
    const ir::State& state = module.state(graph.values[v].state);
    const ir::StateId source = state.derived_from.empty() ? kNone : module.find_state(state.derived_from);
    trained[v] = state.trained || (source != kNone && module.state(source).trained);
  }
  for (const Node& node : graph.nodes)
    if (node.op->name == ops::kReceive ||  // of which it is not known
        std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](ValueId id) { return id != kNone && trained[index(id)]; }))
      for (const ValueId id : node.outputs) trained[index(id)] = true;
  std::vector<bool> free(graph.values.size(), false);
  if (std::find(trained.begin(), trained.end(), true) == trained.end()) return free;
  for (std::size_t v = 0; v < free.size(); ++v) free[v] = !trained[v] || graph.values[v].type.shape.rank() == 0;
  return free;
}

namespace {

Chain chain_of(const Graph& graph, const std::vector<bool>& free, bool between_layers) {
  const auto is_free = [&](ValueId id) { return !free.empty() && free[index(id)]; };
  const std::vector<ValueId> storage = storage_of(graph);
  std::vector<int> reads = forward_reads(graph, storage);
  const std::vector<bool> of_states = made_of_states(graph);
  Chain chain;
  std::set<ValueId> open;  // made, and to be read by a later forward node
  ValueId passing = kNone;
  std::int32_t chunk = kNone;
  bool sends = false;  // the chunk so far
  bool named = true;   // the last segment, by a node of the model that is trained
  LayerBegins begins_layer;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != ir::Phase::forward) continue;
    if (ops::sends_or_receives(*node.op)) {
      sends = sends || node.op->name == ops::kSend;
      if (node.op->name == ops::kReceive && reads[index(node.outputs.front())] > 0) open.insert(node.outputs.front());
      continue;
    }
    const std::size_t i = chain.nodes.size();
    chain.nodes.push_back(static_cast<std::int32_t>(n));
    const bool begins_chunk = chunk != node.stage;
    chunk = node.stage;
    const bool cut = open.size() == 1 && *open.begin() != passing;
    const std::string layer = layer_of(graph.value(node.outputs.front()).name);
    const bool trained = !std::all_of(node.outputs.begin(), node.outputs.end(), is_free);
    const bool of_layer = trained && !of_states[index(node.outputs.front())];
    const bool skipped = between_layers && of_layer && begins_layer(layer) && !chain.segments.back().numbered.empty();
    if (begins_chunk || cut || skipped) {
      if (cut) passing = *open.begin();
      if (!chain.segments.empty()) chain.segments.back().end = i;
      chain.segments.push_back({i, i, cut ? passing : kNone, layer, {}, begins_chunk});
      sends = sends && !begins_chunk;
      named = false;
    }
    if (trained) {
      if (!named) chain.segments.back().layer = layer;
      named = true;
      if (std::string& own = chain.segments.back().numbered; own.empty() && is_numbered(layer)) own = layer;
    }
    for (const ValueId id : node.inputs) {
      if (id == kNone) continue;
      const ValueId owner = storage[index(id)];
      if (--reads[index(owner)] == 0) open.erase(owner);
    }
    for (const ValueId id : node.outputs)
      if (storage[index(id)] == id && reads[index(id)] > 0 && !of_states[index(id)] && !is_free(id)) open.insert(id);
  }
  if (chain.segments.empty()) return chain;
  chain.segments.back().end = chain.nodes.size();
  chain.segments.back().gradients_follow = !sends;
  return chain;
}

}  // namespace

Chain find_chain(const Graph& graph, const std::vector<bool>& free) { return chain_of(graph, free, false); }
Chain find_stage_chain(const Graph& graph, const std::vector<bool>& free) { return chain_of(graph, free, true); }

const std::string& first_value(const Graph& graph, const Chain& chain, const Segment& segment) {
  return graph.value(graph.nodes[index(chain.nodes[segment.begin])].outputs.front()).name;
}

std::vector<std::size_t> layer_begins(const Chain& chain) {
  std::vector<std::size_t> begins;
  std::string last;
  for (std::size_t s = 0; s < chain.segments.size(); ++s) {
    const std::string& layer = chain.segments[s].numbered;
    // What is named after a layer, as a projection "distil.blocks.2" to the teacher's, is none itself.
    const bool of_another = std::any_of(begins.begin(), begins.end(), [&](std::size_t begun) {
      return layer.ends_with("." + chain.segments[begun].numbered);
    });
    if (layer.empty() || layer == last || of_another) continue;
    begins.push_back(s);
    last = layer;
  }
  return begins;
}

}  // namespace trireme::passes
