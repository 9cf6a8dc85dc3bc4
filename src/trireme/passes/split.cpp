#include "trireme/passes/split.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/message.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/gradient_sums.h"
#include "trireme/passes/state_graphs.h"

namespace trireme::passes {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using ir::Phase;
using ir::StateId;
using ir::ValueId;

bool is_start(const Graph& graph) { return passes::is_start(graph.name); }
bool is_body(const Graph& graph) { return reads_batches(graph.name); }

// The values that go from each part to its neighbours, in the order in which they are sent.
class Crossings {
 public:
  Crossings(const Graph& graph, int parts) : graph_(graph), forward(index(parts)), backward(index(parts)) {
    find_reach();
    for (std::size_t c = 0; c + 1 < forward.size(); ++c) {
      if (c > 0) pass_on(forward[c - 1], forward[c], [&](ValueId id) { return up_[index(id)] > place(c); });
      add_made(c, forward[c], [&](const Node&, ValueId id) { return up_[index(id)] > place(c); });
    }
    for (std::size_t c = backward.size(); c-- > 1;) {
      const auto goes_down = [&](ValueId id) { return down_[index(id)] < place(c); };
      const auto made = [&](bool early) {
        add_made(c, backward[c], [&](const Node& node, ValueId id) {
          return goes_down(id) && (node.phase == Phase::forward) == early;
        });
      };
      made(true);
      if (c + 1 < backward.size()) pass_on(backward[c + 1], backward[c], goes_down);
      made(false);
    }
  }

 private:
  static std::int32_t place(std::size_t part) { return static_cast<std::int32_t>(part); }

  void find_reach() {
    std::vector<const Node*> producer(graph_.values.size(), nullptr);
    for (const Node& node : graph_.nodes)
      for (const ValueId id : node.outputs) producer[index(id)] = &node;
    up_.assign(graph_.values.size(), kNone);
    down_.assign(graph_.values.size(), kNone);
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (producer[v] != nullptr) up_[v] = down_[v] = producer[v]->stage;
    for (const Node& node : graph_.nodes)
      for (const ValueId id : node.inputs) {
        if (id == kNone || producer[index(id)] == nullptr) continue;
        const Node& made = *producer[index(id)];
        const std::string& name = graph_.value(id).name;
        if (made.phase == Phase::weight_gradient && node.stage != made.stage)
          fail("'{}' is a weight's gradient of part {}, and part {} reads it", name, made.stage, node.stage);
        if (node.stage > made.stage && made.phase != Phase::forward)
          fail("'{}' is a gradient of part {}, and the later part {} reads it", name, made.stage, node.stage);
        if (node.stage < made.stage && node.phase == Phase::forward)
          fail("'{}' is made by part {}, and the earlier part {} reads it", name, made.stage, node.stage);
        up_[index(id)] = std::max(up_[index(id)], node.stage);
        down_[index(id)] = std::min(down_[index(id)], node.stage);
      }
  }

  template <class F>
  static void pass_on(const std::vector<ValueId>& from, std::vector<ValueId>& to, F&& further) {
    std::copy_if(from.begin(), from.end(), std::back_inserter(to), further);
  }

  template <class F>
  void add_made(std::size_t part, std::vector<ValueId>& to, F&& wanted) const {
    for (const Node& node : graph_.nodes)
      if (node.stage == place(part))
        for (const ValueId id : node.outputs)
          if (wanted(node, id)) to.push_back(id);
  }

  const Graph& graph_;
  std::vector<std::int32_t> up_;    // by value: the last part that reads or makes it
  std::vector<std::int32_t> down_;  // and the first

 public:
  std::vector<std::vector<ValueId>> forward;   // by part: to the next
  std::vector<std::vector<ValueId>> backward;  // to the one before
};

class Splitter {
 public:
  Splitter(ir::Module& module, const Split::Options& options)
      : module_(module), options_(options), stages_of_(module.states.size()) {}

  void run() {
    find_states();
    for (Graph& graph : module_.graphs)
      if (is_body(graph)) split_body(graph);
    if (module_.has_graph("update")) {
      split_update(module_.graph("update"));
      add_ties();
    }
    for (Graph& graph : module_.graphs)
      if (is_start(graph)) split_start(graph);
    for (Graph& graph : module_.graphs) graph.compact();
    drop_states();
  }

 private:
  bool is_own(std::int32_t part) const { return part % options_.stages == options_.stage; }
  bool is_here(StateId state) const { return stages_of_[index(state)].contains(options_.stage); }

  // ---- states

  void find_states() {
    for (const Graph& graph : module_.graphs) {
      if (!is_body(graph)) continue;
      const ir::Uses uses(graph);
      for (const Node& node : graph.nodes) {
        if (node.stage < 0 || node.stage >= options_.parts)
          fail("a node of graph '{}' belongs to part {} of {}", graph.name, node.stage, options_.parts);
        for (const ValueId id : node.inputs)
          if (id != kNone && graph.value(id).kind == ir::ValueInfo::Kind::state)
            stages_of_[index(graph.value(id).state)].insert(node.stage % options_.stages);
      }
      for (const ir::Write& write : graph.writes)
        if (const std::int32_t producer = uses.producer[index(write.value)]; producer != kNone)
          stages_of_[index(write.state)].insert(graph.nodes[index(producer)].stage % options_.stages);
    }
    // Copies and what they are copies of stay together.
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      if (const std::string& source = module_.states[s].derived_from; !source.empty())
        stages_of_[index(module_.find_state(source))].merge(std::set(stages_of_[s]));
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      if (const std::string& source = module_.states[s].derived_from; !source.empty())
        stages_of_[s] = stages_of_[index(module_.find_state(source))];
    if (module_.has_graph("update")) find_optimizer_states(module_.graph("update"));
    // What no graph that goes through the stages uses stays with the state after which it is named.
    for (std::size_t s = 0; s < module_.states.size(); ++s) {
      const std::string& name = module_.states[s].name;
      const std::size_t end = name.rfind('/');
      if (!stages_of_[s].empty() || end == std::string::npos) continue;
      if (const StateId of = module_.find_state(name.substr(0, end)); of != kNone)
        stages_of_[s] = stages_of_[index(of)];
    }
    for (std::size_t s = 0; s < module_.states.size(); ++s) {
      const ir::State& state = module_.states[s];
      const bool everywhere = state.category == ir::Category::scalars && !state.step_local;
      for (int stage = 0; stage < options_.stages && everywhere; ++stage) stages_of_[s].insert(stage);
      if (stages_of_[s].empty()) stages_of_[s].insert(0);
      if (!state.trained) continue;
      const StateId gradient = module_.find_state(gradient_name(state.name));
      if (gradient != kNone && stages_of_[index(gradient)] != stages_of_[s])
        fail("parameter '{}' is used by stages that have no gradient of it", state.name);
    }
  }

  // What a parameter's update writes goes with the parameter.
  void find_optimizer_states(const Graph& update) {
    const ir::Uses uses(update);
    std::map<std::int32_t, StateId> parameter;  // by node
    for (const ir::Write& write : update.writes)
      if (module_.state(write.state).trained) parameter[uses.producer[index(write.value)]] = write.state;
    for (const ir::Write& write : update.writes)
      if (const auto of = parameter.find(uses.producer[index(write.value)]); of != parameter.end())
        stages_of_[index(write.state)] = stages_of_[index(of->second)];
  }

  void drop_states() {
    std::vector<StateId> number(module_.states.size(), kNone);
    std::vector<ir::State> kept;
    for (std::size_t s = 0; s < module_.states.size(); ++s) {
      if (!is_here(static_cast<StateId>(s))) continue;
      number[s] = static_cast<StateId>(kept.size());
      kept.push_back(std::move(module_.states[s]));
    }
    module_.states = std::move(kept);
    const auto renumber = [&](StateId& state, const std::string& graph) {
      state = number[index(state)];
      if (state == kNone) fail("graph '{}' uses a state that another stage has", graph);
    };
    for (Graph& graph : module_.graphs) {
      for (ir::ValueInfo& value : graph.values)
        if (value.kind == ir::ValueInfo::Kind::state) renumber(value.state, graph.name);
      for (ir::Write& write : graph.writes) renumber(write.state, graph.name);
    }
  }

  // ---- graphs that go through the parts

  void split_body(Graph& graph) {
    const Crossings crossings(graph, options_.parts);
    const ir::Uses uses(graph);
    std::vector<Node> nodes;
    std::vector<std::map<ValueId, ValueId>> received(index(options_.parts));  // by part
    std::vector<std::array<bool, 2>> begun(index(options_.parts), {false, false});

    // Of a value that goes from one part to a neighbour.
    const auto message = [&](std::string_view op, ValueId id, ValueId operand, std::int32_t from, std::int32_t to,
                             std::int32_t at) {
      const bool up = to > from;
      const std::vector<ValueId>& all = (up ? crossings.forward : crossings.backward)[index(from)];
      std::int64_t key = std::find(all.begin(), all.end(), id) - all.begin();
      for (std::int32_t c = 0; c < from; ++c)
        key += std::ssize((up ? crossings.forward : crossings.backward)[index(c)]);
      ir::Attributes attributes{{"channel", std::string(up ? "activation" : "gradient")},
                                {"from", static_cast<std::int64_t>(from % options_.stages)},
                                {"to", static_cast<std::int64_t>(to % options_.stages)},
                                {"key", key},
                                {"of", graph.value(id).name}};
      const bool sends = op == ops::kSend;
      if (!sends) describe(attributes, graph.type(id));
      nodes.push_back(graph.make_node(module_.registry->at(op),
                                      sends ? std::vector<ValueId>{operand} : std::vector<ValueId>{}, attributes,
                                      graph.value(id).name + (sends ? ".sent" : ".received"),
                                      up ? Phase::forward : Phase::input_gradient, at / options_.stages));
      return nodes.back().outputs.front();
    };
    // Receives what one direction brings to a part, and passes on what goes further.
    const auto begin = [&](std::int32_t part, bool gradient) {
      bool& done = begun[index(part)][gradient ? 1 : 0];
      if (done) return;
      done = true;
      const std::int32_t from = part + (gradient ? 1 : -1);
      const std::int32_t to = part + (gradient ? -1 : 1);
      if (from < 0 || from >= options_.parts) return;
      const auto& lists = gradient ? crossings.backward : crossings.forward;
      for (const ValueId id : lists[index(from)]) {
        const ValueId copy = message(ops::kReceive, id, kNone, from, part, part);
        graph.value(copy).sharding = graph.value(id).sharding;
        received[index(part)][id] = copy;
      }
      for (const ValueId id : lists[index(part)])
        if (const auto copy = received[index(part)].find(id); copy != received[index(part)].end())
          message(ops::kSend, id, copy->second, part, to, part);
    };

    const std::vector<Node> all = std::move(graph.nodes);
    for (const Node& node : all) {
      if (!is_own(node.stage)) continue;
      const std::size_t part = index(node.stage);
      begin(node.stage, node.phase != Phase::forward);
      nodes.push_back(node);
      nodes.back().stage = node.stage / options_.stages;
      for (ValueId& id : nodes.back().inputs)
        if (const auto copy = received[part].find(id); copy != received[part].end()) id = copy->second;
      for (const ValueId id : node.outputs)
        for (const bool gradient : {false, true}) {
          const std::vector<ValueId>& sent = (gradient ? crossings.backward : crossings.forward)[part];
          if (std::find(sent.begin(), sent.end(), id) != sent.end())
            message(ops::kSend, id, id, node.stage, node.stage + (gradient ? -1 : 1), node.stage);
        }
    }
    for (std::int32_t part = options_.stage; part < options_.parts; part += options_.stages)
      for (const bool gradient : {false, true}) begin(part, gradient);
    graph.nodes = std::move(nodes);

    const auto made_here = [&](ValueId id) {
      const std::int32_t producer = uses.producer[index(id)];
      return producer == kNone ? options_.stage == 0 : is_own(all[index(producer)].stage);
    };
    std::erase_if(graph.writes, [&](const ir::Write& write) { return !made_here(write.value); });
    std::vector<Term> terms;
    for (const ir::Output& output : graph.outputs)
      terms.push_back({made_here(output.value) ? output.value : kNone, graph.type(output.value), output.name});
    const std::vector<ValueId> sums =
        over_stages(graph, graph.nodes, terms, Phase::forward, options_.parts / options_.stages - 1);
    for (std::size_t o = 0; o < sums.size(); ++o) graph.outputs[o].value = sums[o];
    drop_unread_inputs(graph);
  }

  static void describe(ir::Attributes& attributes, const TensorType& type) {
    attributes.set("shape", dims(type.shape));
    attributes.set("dtype", std::string(name_of(type.dtype)));
  }

  // What a stage adds to a sum over the stages.
  struct Term {
    ValueId own = kNone;  // kNone: nothing
    TensorType type;
    std::string label;
  };

  // Sums over the stages, in one collective; what each has, where they are `apart`.
  std::vector<ValueId> over_stages(Graph& graph, std::vector<Node>& nodes, const std::vector<Term>& terms, Phase phase,
                                   std::int32_t chunk, bool apart = false) {
    if (terms.empty()) return {};
    std::vector<ValueId> own;
    for (const Term& term : terms) {
      own.push_back(term.own);
      if (term.own != kNone) continue;
      ir::Attributes attributes{{"value", 0.0}};
      describe(attributes, term.type);
      nodes.push_back(
          graph.make_node(module_.registry->at("fill"), {}, attributes, term.label + ".none", phase, chunk));
      own.back() = nodes.back().outputs.front();
    }
    if (apart) return own;
    nodes.push_back(graph.make_node(module_.registry->at(ops::kAllReduce), own,
                                    {{"axis", std::string(ir::kPipelineAxis)},
                                     {"parts", static_cast<std::int64_t>(options_.stages)},
                                     {"reduce", std::string("sum")}},
                                    terms.front().label + ".stages", phase, chunk));
    // Each by its own name: by that the stages know what they have in common.
    std::vector<std::string> names;
    for (const Term& term : terms) names.push_back(term.label + ".stages");
    graph.rename(nodes.back().outputs, names);
    return nodes.back().outputs;
  }

  static void drop_unread_inputs(Graph& graph) {
    const ir::Uses uses(graph);
    std::erase_if(graph.inputs,
                  [&](ValueId id) { return uses.consumers[index(id)].empty() && !uses.escapes[index(id)]; });
  }

  // ---- the update

  void split_update(Graph& graph) {
    std::vector<bool> absent(graph.values.size(), false);
    std::vector<StateId> origin(graph.values.size(), kNone);  // the state that a value is, summed over ranks or not
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].kind == ir::ValueInfo::Kind::state) {
        origin[v] = graph.values[v].state;
        absent[v] = !is_here(origin[v]);
      }
    std::map<ValueId, ValueId> replaced;
    std::vector<Node> all = std::move(graph.nodes);
    std::vector<Node> nodes;
    for (Node& node : all) {
      if (node.op->name == "clip_scale") {
        const std::array known{node.inputs[0], node.inputs[1]};
        std::vector<Term> terms;
        for (const ValueId id : known)
          terms.push_back({absent[index(id)] ? kNone : id, graph.type(id), id == known[0] ? "grad_square" : "loss"});
        const std::vector<ValueId> sums =
            over_stages(graph, nodes, terms, Phase::update, node.stage, options_.asynchronous);
        for (std::size_t i = 0; i < sums.size(); ++i) replaced[known[i]] = sums[i];
      } else if (node.op->name == "add_n") {
        std::erase_if(node.inputs, [&](ValueId id) { return absent[index(id)]; });
      }
      for (ValueId& id : node.inputs)
        if (const auto by = replaced.find(id); by != replaced.end()) id = by->second;
      const bool kept =
          std::none_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return id != kNone && index(id) < absent.size() && absent[index(id)]; }) &&
          !(node.op->name == "add_n" && node.inputs.empty()) &&
          !(node.op->name == "sum_squares" && counted_elsewhere(node, origin));
      for (const ValueId id : node.outputs) {
        absent[index(id)] = !kept;
        if (node.inputs.size() == 1 && index(node.inputs.front()) < origin.size())
          origin[index(id)] = origin[index(node.inputs.front())];
      }
      if (kept) nodes.push_back(std::move(node));
    }
    graph.nodes = std::move(nodes);
    std::erase_if(graph.writes,
                  [&](const ir::Write& write) { return !is_here(write.state) || absent[index(write.value)]; });
    for (ir::Output& output : graph.outputs) {
      if (const auto by = replaced.find(output.value); by != replaced.end()) output.value = by->second;
      if (index(output.value) < absent.size() && absent[index(output.value)])
        fail("output '{}' of the update is another stage's", output.name);
    }
    drop_dead(graph);
    drop_unread_inputs(graph);
  }

  // A parameter that several stages have counts once.
  bool counted_elsewhere(const Node& node, const std::vector<StateId>& origin) const {
    const StateId gradient = origin[index(node.inputs.front())];
    return gradient != kNone && *stages_of_[index(gradient)].begin() != options_.stage;
  }

  void add_ties() {
    std::vector<StateId> tied;
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      if (module_.states[s].category == ir::Category::gradients && stages_of_[s].size() > 1 &&
          is_here(static_cast<StateId>(s)))
        tied.push_back(static_cast<StateId>(s));
    if (tied.empty()) return;
    Graph graph;
    graph.name = kTies;
    for (const StateId id : tied) {
      const ir::State& state = module_.state(id);
      const ValueId own = graph.read(module_, id);
      const auto between = [&](int from, int to) {
        return ir::Attributes{{"channel", std::string("tie")},
                              {"from", static_cast<std::int64_t>(from)},
                              {"to", static_cast<std::int64_t>(to)},
                              {"key", static_cast<std::int64_t>(id)},
                              {"of", state.name}};
      };
      std::vector<ValueId> terms;  // by rising stage: the same sum everywhere
      for (const int other : stages_of_[index(id)])
        if (other != options_.stage)
          graph.add(module_.registry->at(ops::kSend), {own}, between(options_.stage, other), state.name + ".sent",
                    Phase::update);
      for (const int other : stages_of_[index(id)]) {
        if (other == options_.stage) {
          terms.push_back(own);
          continue;
        }
        ir::Attributes attributes = between(other, options_.stage);
        describe(attributes, state.type);
        terms.push_back(
            graph.add(module_.registry->at(ops::kReceive), {}, attributes, state.name + ".received", Phase::update)
                .front());
      }
      ValueId sum = terms.front();
      for (std::size_t t = 1; t < terms.size(); ++t)
        sum = graph.add(module_.registry->at("add"), {sum, terms[t]}, {}, state.name + ".sum", Phase::update).front();
      graph.writes.push_back({id, sum, ir::Write::Mode::set});
    }
    module_.graphs.push_back(std::move(graph));
  }

  // ---- start values, copies, and what else sets states from states

  void split_start(Graph& graph) {
    if (is_state_graph(graph.name)) sum_over_stages(graph);
    std::erase_if(graph.writes, [&](const ir::Write& write) { return !is_here(write.state); });
    drop_dead(graph);
    if (is_state_graph(graph.name)) drop_unread_inputs(graph);
  }

  // What is added up there (add_n) is added up over all stages: some may have some of it. In one collective, since on
  // some stages another of the sums may be ready first.
  void sum_over_stages(Graph& graph) {
    std::vector<bool> absent(graph.values.size(), false);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      absent[v] = graph.values[v].kind == ir::ValueInfo::Kind::state && !is_here(graph.values[v].state);
    const auto is_absent = [&](ValueId id) { return id != kNone && index(id) < absent.size() && absent[index(id)]; };
    std::map<ValueId, ValueId> replaced;
    std::vector<Node> all = std::move(graph.nodes);
    std::vector<Node> nodes;
    std::vector<Term> terms;
    std::vector<ValueId> sums;
    const WholeSums whole(graph, all);
    const auto keep = [&](Node& node, bool sum) {
      for (ValueId& id : node.inputs)
        if (const auto by = replaced.find(id); by != replaced.end()) id = by->second;
      const bool adds = node.op->name == "add_n";
      if (adds) std::erase_if(node.inputs, is_absent);
      const bool kept =
          std::none_of(node.inputs.begin(), node.inputs.end(), is_absent) && !(adds && node.inputs.empty());
      const ValueId made = node.outputs.front();
      for (const ValueId id : node.outputs) absent[index(id)] = !kept;
      if (sum) {
        sums.push_back(made);
        terms.push_back({kept ? made : kNone, graph.type(made), graph.value(made).name});
      }
      if (kept) nodes.push_back(std::move(node));
    };
    for (std::size_t n = 0; n < all.size(); ++n)
      if (!whole.behind[n]) keep(all[n], whole.sum[n]);
    const std::vector<ValueId> totals = over_stages(graph, nodes, terms, Phase::update, 0);
    for (std::size_t t = 0; t < totals.size(); ++t) replaced[sums[t]] = totals[t];
    for (std::size_t n = 0; n < all.size(); ++n)
      if (whole.behind[n]) keep(all[n], false);
    graph.nodes = std::move(nodes);
    for (ir::Write& write : graph.writes)
      if (const auto by = replaced.find(write.value); by != replaced.end()) write.value = by->second;
  }

  static void drop_dead(Graph& graph) {
    std::vector<bool> wanted(graph.values.size(), false);
    for (const ir::Write& write : graph.writes) wanted[index(write.value)] = true;
    for (const ir::Output& output : graph.outputs) wanted[index(output.value)] = true;
    std::vector<Node> kept;
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      Node& node = graph.nodes[n];
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return wanted[index(id)]; }))
        continue;
      for (const ValueId id : node.inputs)
        if (id != kNone) wanted[index(id)] = true;
      kept.push_back(std::move(node));
    }
    std::reverse(kept.begin(), kept.end());
    graph.nodes = std::move(kept);
  }

  ir::Module& module_;
  const Split::Options& options_;
  std::vector<std::set<int>> stages_of_;  // by state
};

}  // namespace

void Split::run(ir::Module& module) const { Splitter(module, options_).run(); }

}  // namespace trireme::passes
