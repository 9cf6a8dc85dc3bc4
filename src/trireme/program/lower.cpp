#include "trireme/program/lower.h"

#include <algorithm>
#include <memory>
#include <span>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/message.h"
#include "trireme/ops/tier/tier.h"
#include "trireme/program/categories.h"
#include "trireme/program/graph_run.h"
#include "trireme/program/pass.h"

namespace trireme::program {
namespace {

using ir::Graph;
using ir::index;
using ir::Node;
using ir::StateId;
using ir::ValueId;

using Write = GraphRun::Write;

class Lowering {
 public:
  Lowering(const ir::Module& module, const StateLayout& layout, const LowerOptions& options)
      : module_(module), options_(options), values_(module.states.size()) {
    program_.name = options.name;
    program_.device = options.device;
    program_.threads = options.threads;
    program_.micro_batches = options.micro_batches;
    program_.mesh = module.mesh;
    program_.state_bytes = layout.bytes;
    program_.tier_state_bytes = layout.tier_bytes;
    for (std::size_t s = 0; s < module.states.size(); ++s) {
      const ir::State& state = module.states[s];
      Buffer buffer{
          state.name, state.storage_bytes(), layout.offsets[s], category_of(state), static_cast<StateId>(s), kNone,
          kNone};
      if (state.step_local) {
        buffer.state = kNone;
        buffer.offset = 0;
      }
      buffer.tier = state.tier;
      if (state.tier != 0) buffer.alignment = kPage;
      program_.buffers.push_back(std::move(buffer));  // state s is buffer s
    }
    if (layout.staging_bytes > 0)
      program_.buffers.push_back(
          {"checkpoint", layout.staging_bytes, layout.staging, Category::staging, kStaging, kNone, kNone});
    program_.states = module.states.size();
    summed_.assign(module.states.size(), false);
  }

  Program run() {
    options_.calls.empty() ? run_actions() : run_calls();
    program_.values = values_.take();
    return std::move(program_);
  }

 private:
  void run_actions() {
    const Graph& body = module_.graph(options_.body);
    const Graph* tail = options_.tail.empty() ? nullptr : &module_.graph(options_.tail);
    // A stage without parameters may have nothing to do backwards.
    const bool backward = std::any_of(options_.actions.begin(), options_.actions.end(),
                                      [](const Action& a) { return a.kind == Action::Kind::backward; });
    const ActionNeeds needs{options_.micro_batches, backward || has_gradients(body), tail != nullptr, options_.chunks};
    const std::vector<Action> actions = options_.actions.empty() ? plain_order(needs) : options_.actions;
    try {
      check_actions(actions, needs);
      if (!options_.actions.empty()) check_state_order(module_, body, actions);
    } catch (Error& e) {
      if (options_.order.empty()) throw;
      throw e.within(options_.order);
    }
    std::vector<std::unique_ptr<GraphRun>> runs(index(options_.micro_batches));
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const Action& action = actions[a];
      if (action.kind == Action::Kind::update) {
        for (const std::string& name : options_.before_tail)
          if (module_.has_graph(name)) run_tail(module_.graph(name));
        run_tail(*tail);
        for (const std::string& name : options_.after_tail)
          if (module_.has_graph(name)) run_tail(module_.graph(name));
        continue;
      }
      std::unique_ptr<GraphRun>& run = runs[index(action.micro)];
      if (!run) {
        run = std::make_unique<GraphRun>(module_, body, action.micro, values_, actions);
        begin(*run);
      }
      for (std::size_t n = 0; n < body.nodes.size(); ++n)
        if (run->action_of[n] == action) lower_node(*run, n);
      const auto later = std::span(actions).subspan(a + 1);
      const auto is_own = [&](const Action& other) { return is_of(other, action.micro); };
      if (std::none_of(later.begin(), later.end(), is_own)) {
        std::vector<const Graph*> graphs;
        if (!later.empty() && later.front().kind != Action::Kind::update) graphs.push_back(&body);
        if (tail != nullptr) graphs.push_back(tail);
        finish(*run, graphs);
        run.reset();
      } else if (!is_own(later.front())) {
        suspend(*run);
      }
    }
  }

  BufferId new_buffer(const std::string& name, const TensorType& type, Category category) {
    program_.buffers.push_back({name, type.bytes(), 0, category, kNone, kNone, kNone});
    return static_cast<BufferId>(program_.buffers.size()) - 1;
  }

  // A buffer that copies between tiers touch.
  BufferId new_pages(const std::string& name, const TensorType& type, Category category, int tier) {
    const BufferId buffer = new_buffer(name, type, category);
    program_.buffers.back().alignment = kPage;
    program_.buffers.back().tier = tier;
    return buffer;
  }

  // Values get buffers; writes decide where some of them go.
  void begin(GraphRun& run) {
    for (const ValueId id : run.graph.inputs) load_input(run, id);
    plan_direct_writes(module_, run);
    for (const Node& node : run.graph.nodes)
      if (node.op->name == ops::kAssemble && run.piece_of[index(node.inputs.front())].buffer == kNone)
        place_pieces(run, node);
  }

  // What is no state's new contents is assembled in a buffer of its own: each piece is made in its rows of it.
  void place_pieces(GraphRun& run, const Node& node) {
    const auto made_by = [&](ValueId id) -> const Node& {
      const std::int32_t producer = run.uses.producer[index(id)];
      TRI_CHECK(producer != ir::kNone, "a piece of '{}' is made by no node", run.graph.value(id).name);
      return run.graph.nodes[index(producer)];
    };
    const ValueId whole = node.outputs.front();
    const std::int32_t number = values_.made();
    BufferId buffer = kNone;
    std::size_t offset = 0;
    for (const ValueId piece : node.inputs) {
      // A sum over ranks is taken where its terms are.
      std::vector<ValueId> placed = {piece};
      std::vector<std::int32_t> numbers = {number};
      for (const Node* made = &made_by(piece); made->op->traits.view || sums_in_place(run, *made);
           made = &made_by(placed.back())) {
        placed.push_back(made->inputs.front());
        numbers.push_back(made->op->traits.view ? numbers.back() : values_.made());
      }
      if (buffer == kNone)
        buffer =
            new_buffer(run.graph.value(whole).name, run.graph.type(whole), category_made(run, made_by(placed.back())));
      for (std::size_t p = 0; p < placed.size(); ++p)
        run.piece_of[index(placed[p])] = {buffer, run.graph.type(placed[p]), offset, {}, numbers[p]};
      offset += run.graph.type(piece).bytes();
    }
  }

  static bool sums_in_place(const GraphRun& run, const Node& node) {
    return node.op->name == ops::kAllReduce && node.inputs.size() == 1 &&
           run.uses.consumers[index(node.inputs.front())].size() == 1 &&
           !run.uses.escapes[index(node.inputs.front())] && run.uses.producer[index(node.inputs.front())] != ir::kNone;
  }

  // `later` are the graphs that run after this one.
  void finish(GraphRun& run, const std::vector<const Graph*>& later) {
    keep_outputs(run, later);
    finish_writes(run);
  }

  void run_tail(const Graph& graph) { run_whole(graph, 0, {}); }

  void run_whole(const Graph& graph, int micro, const std::vector<const Graph*>& later) {
    GraphRun run(module_, graph, micro, values_);
    begin(run);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) lower_node(run, n);
    finish(run, later);
  }

  void run_calls() {
    for (std::size_t s = 0; s < module_.states.size(); ++s)
      summed_[s] = options_.sums_begun && !module_.states[s].step_local;
    std::vector<Graph> graphs;
    for (const GraphCall& call : options_.calls) graphs.push_back(in_place_of(module_.graph(call.graph), call.states));
    for (std::size_t c = 0; c < graphs.size(); ++c) {
      std::vector<const Graph*> later;
      if (!graphs[c].outputs.empty())
        for (std::size_t l = c + 1; l < graphs.size(); ++l) later.push_back(&graphs[l]);
      run_whole(graphs[c], options_.calls[c].micro, later);
      if (options_.calls[c].ends_sums) summed_.assign(module_.states.size(), false);
    }
  }

  // The graph with other states.
  static Graph in_place_of(Graph graph, const std::vector<std::pair<StateId, StateId>>& states) {
    const auto replace = [&](StateId& state) {
      const auto other = std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.first == state; });
      if (other != states.end()) state = other->second;
    };
    for (ir::ValueInfo& value : graph.values)
      if (value.kind == ir::ValueInfo::Kind::state) replace(value.state);
    for (ir::Write& write : graph.writes) replace(write.state);
    return graph;
  }

  // Before another micro-batch's action: the states are left as this micro-batch makes them, as far as it has come, and
  // what it still wants of what they held moves out. What it has not come to write stays where it is: the micro-batch
  // before writes it first, and the one behind only afterwards.
  void suspend(GraphRun& run) {
    std::vector<bool> written(module_.states.size(), false);
    for (const Write& w : run.writes)
      if (run.is_made(w.write.value)) written[index(w.write.state)] = true;
    for (std::size_t v = 0; v < run.buffer_of.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      const BufferId buffer = run.buffer_of[v];
      if (!is_state(buffer) || !written[index(buffer)] || !run.wanted_later(id)) continue;
      const ir::State& state = module_.state(buffer);
      if (state.tier != 0)
        fail("'{}' lies in the {}'s memory: what a micro-batch reads of it cannot outlast its action", state.name,
             tier_name(state.tier));
      run.settle(id, copied(run, run.operand(id), state.name));
    }
    finish_writes(run);
  }

  void load_input(GraphRun& run, ValueId id) {
    const TensorType& type = run.graph.type(id);
    Instruction load;
    load.kind = Instruction::Kind::input;
    load.name = run.graph.value(id).name;
    load.micro = run.micro;
    load.outputs = {{new_buffer(load.name, type, Category::staging), type, 0, {}, values_.made()}};
    run.settle(id, load.outputs.front());
    program_.instructions.push_back(std::move(load));
  }

  // Where output `id` of `node` is written to if not to a buffer of its own: rows or all of a state. The first
  // contribution to a sum overwrites; later ones need a kernel that adds to the value `sum`. A sum in another tier is
  // brought here first.
  Operand direct_target(GraphRun& run, const Node& node, ValueId id, std::int32_t& sum) {
    if (const Operand& piece = run.piece_of[index(id)]; piece.buffer != kNone) return piece;
    for (const std::size_t i : run.writes_of[index(id)]) {
      Write& w = run.writes[i];
      if (!w.direct) continue;
      Operand target{w.write.state, module_.state(w.write.state).type};
      if (w.write.mode == ir::Write::Mode::add) {
        const bool adds = summed_[index(w.write.state)];
        if (adds && !(node.op->traits.accumulates && node.outputs.front() == id)) return {};
        target = sum_here(run, w.write.state, node.phase, adds);
        if (adds) sum = target.value;
        summed_[index(w.write.state)] = true;
      }
      w.done = true;
      target.value = values_.made(target.buffer == w.write.state ? w.write.state : kNone);
      return target;
    }
    return {};
  }

  // A sum's buffer, or one on the device that takes its place: holding what was summed so far, if that is asked for.
  Operand sum_here(const GraphRun& run, StateId id, ir::Phase phase, bool so_far) {
    const ir::State& state = module_.state(id);
    const Operand there{id, state.type, 0, {}, values_.held(id)};
    if (state.tier == 0) return there;
    const Operand here{new_pages(state.name, state.type, category_of(state), 0), state.type, 0, {}, values_.made()};
    if (so_far) move(Instruction::Kind::load, run, state.name, phase, there, here);
    return here;
  }

  // What is written into a state is what it holds from here on.
  void wrote(GraphRun& run, const Operand& to) {
    if (is_state(to.buffer)) run.write(to.buffer, to.value);
  }

  void move(Instruction::Kind kind, const GraphRun& run, const std::string& name, ir::Phase phase, const Operand& from,
            const Operand& to) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.name = name;
    instruction.micro = run.micro;
    instruction.phase = phase;
    instruction.stream = kind == Instruction::Kind::store ? kStoreStream : kLoadStream;
    instruction.inputs = {from};
    instruction.outputs = {to};
    program_.instructions.push_back(std::move(instruction));
  }

  void lower_node(GraphRun& run, std::size_t n) {
    const Node& node = run.graph.nodes[n];
    for (const ValueId id : node.inputs)
      if (id != ir::kNone && !run.is_made(id))
        refuse("'{}' of {} needs '{}', which {} makes later", run.graph.value(node.outputs.front()).name,
               to_text(run.action_of[n]), run.graph.value(id).name,
               to_text(run.action_of[index(run.uses.producer[index(id)])]));
    run.last_lowered = static_cast<std::int32_t>(n);
    run.lowered[n] = true;
    if (node.op->name == ops::kAssemble)
      run.settle(node.outputs.front(), run.piece_of[index(node.inputs.front())]);
    else if (node.op->traits.view)
      view_node(run, node);
    else if (node.op->name == ops::kStore || node.op->name == ops::kLoad)
      move_node(run, node);
    else
      launch_node(run, node);
    // Sums that a node could not write itself are added as soon as their value exists, so that it need not be kept;
    // unless the graph also reads the sum, which must then stay what it was.
    for (const ValueId id : node.outputs)
      for (const std::size_t i : run.writes_of[index(id)]) {
        Write& w = run.writes[i];
        if (!w.done && w.write.mode == ir::Write::Mode::add && run.read_of[index(w.write.state)] == ir::kNone)
          finish_write(run, w);
      }
  }

  void view_node(GraphRun& run, const Node& node) const {
    if (node.op->name == ops::kOwnRows) {
      run.settle(node.outputs.front(),
                 own_part(program_.mesh, node, run.operand(node.inputs.front()), run.graph.type(node.outputs.front())));
      return;
    }
    run.settle(node.outputs.front(), run.operand(node.inputs.front()));
    if (node.op->name == ops::kRows)
      run.offset_of[index(node.outputs.front())] += ops::rows_offset(node, run.graph.type(node.inputs.front()));
  }

  void move_node(GraphRun& run, const Node& node) {
    const bool stores = node.op->name == ops::kStore;
    const ValueId id = node.outputs.front();
    const Operand from = run.operand(node.inputs.front());
    // States on the device lie as they do; only copies to and from the host's memory touch them.
    if (Buffer& source = program_.buffers[index(from.buffer)]; source.tier != 0 || source.state == kNone)
      source.alignment = kPage;
    std::int32_t sum = kNone;
    Operand to = direct_target(run, node, id, sum);
    if (to.buffer == kNone) {
      const Category category = program_.buffers[index(from.buffer)].category;
      const int tier = stores ? static_cast<int>(node.attributes.integer("tier")) : 0;
      to = {new_pages(run.graph.value(id).name, from.type, category, tier), from.type, 0, {}, values_.made()};
    }
    wrote(run, to);
    run.settle(id, to);
    move(stores ? Instruction::Kind::store : Instruction::Kind::load, run, run.graph.value(id).name, node.phase, from,
         to);
  }

  void launch_node(GraphRun& run, const Node& node) {
    Instruction launch;
    launch.name = run.graph.value(node.outputs.front()).name;
    launch.op = node.op;
    if (node.op->name == ops::kPush)
      launch.kind = Instruction::Kind::push;
    else if (node.op->name == ops::kPull)
      launch.kind = Instruction::Kind::pull;
    else if (node.op->name == ops::kSend)
      launch.kind = Instruction::Kind::send;
    else if (node.op->name == ops::kReceive)
      launch.kind = Instruction::Kind::receive;
    else if (node.op->traits.collective)
      launch.kind = Instruction::Kind::collective;
    if (launch.kind == Instruction::Kind::collective)
      for (const ValueId id : node.outputs) launch.of.push_back(run.graph.value(id).name);
    launch.attributes = node.attributes;
    launch.on_host = node.on_host;
    launch.recomputed = node.barrier && launch.kind == Instruction::Kind::launch;
    if (node.on_host) launch.stream = kHostStream;
    launch.phase = node.phase;
    launch.micro = run.micro;
    launch.chunk = node.stage;
    launch.inputs.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) launch.inputs.push_back(run.operand(id));
    launch.outputs.reserve(node.outputs.size());
    std::vector<std::pair<Operand, Operand>> sums;  // made here, kept in another tier
    for (const ValueId id : node.outputs) {
      Operand to = direct_target(run, node, id, launch.sum);
      if (to.buffer == kNone) to = part_in_place(run, node, launch.outputs.size());
      if (to.buffer == kNone && node.on_host) to = host_output(run, node, launch.outputs.size());
      if (to.buffer == kNone)
        to = {new_buffer(run.graph.value(id).name, run.graph.type(id), category_made(run, node)), run.graph.type(id)};
      else if (const StateId state = sum_of(run, id); state != kNone && to.buffer != state)
        sums.emplace_back(to, Operand{state, to.type, 0, {}, values_.made(state)});
      if (to.value == kNone) to.value = values_.made();
      wrote(run, to);
      run.settle(id, to);
      launch.outputs.push_back(to);
    }
    launch.accumulate = launch.sum != kNone;
    program_.instructions.push_back(std::move(launch));
    for (const auto& [here, there] : sums) {
      move(Instruction::Kind::store, run, program_.buffers[index(there.buffer)].name, node.phase, here, there);
      wrote(run, there);
    }
  }

  // What is made on the host takes the place of what was stored for it alone, where the op can work so.
  Operand host_output(const GraphRun& run, const Node& node, std::size_t output) {
    const ValueId id = node.outputs[output];
    const TensorType& type = run.graph.type(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (input == ir::kNone || !node.op->traits.allows_in_place(static_cast<int>(output), static_cast<int>(i)))
        continue;
      const std::int32_t producer = run.uses.producer[index(input)];
      const Operand there = run.operand(input);
      if (producer != ir::kNone && run.graph.nodes[index(producer)].op->name == ops::kStore &&
          run.uses.consumers[index(input)].size() == 1 && !run.uses.escapes[index(input)] && !is_state(there.buffer) &&
          there.type.bytes() == type.bytes())
        return {there.buffer, type};
    }
    return {new_pages(run.graph.value(id).name, type, Category::staging, kHostTier), type};
  }

  // The own part of a sum that is a state of this step alone stays within that state, if nobody reads it whole.
  Operand part_in_place(const GraphRun& run, const Node& node, std::size_t i) const {
    if (node.op->name != ops::kReduceScatter) return {};
    const Operand whole = run.operand(node.inputs[i]);
    if (!is_state(whole.buffer) || !module_.state(whole.buffer).step_local || whole.offset != 0) return {};
    const ValueId read = run.read_of[index(whole.buffer)];
    if (run.uses.consumers[index(read)].size() != 1 || run.uses.consumers[index(node.inputs[i])].size() != 1) return {};
    Operand part = own_part(program_.mesh, node, whole, run.graph.type(node.outputs[i]));
    part.value = kNone;  // another than the whole
    return part;
  }

  // The state that a value is a contribution to, if it went there directly.
  static StateId sum_of(const GraphRun& run, ValueId id) {
    for (const std::size_t i : run.writes_of[index(id)])
      if (run.writes[i].done && run.writes[i].write.mode == ir::Write::Mode::add) return run.writes[i].write.state;
    return kNone;
  }

  // Outputs are read when the program is done: one that sits in a state's buffer moves out if that is written later.
  void keep_outputs(GraphRun& run, const std::vector<const Graph*>& later) {
    const auto written_by = [](const Graph& graph, BufferId state) {
      return std::any_of(graph.writes.begin(), graph.writes.end(),
                         [&](const ir::Write& w) { return w.state == state; });
    };
    for (const ir::Output& output : run.graph.outputs) {
      Operand where = run.operand(output.value);
      const bool overwritten =
          is_state(where.buffer) &&
          (written_by(run.graph, where.buffer) ||
           std::any_of(later.begin(), later.end(), [&](const Graph* g) { return written_by(*g, where.buffer); }));
      if (overwritten) where = copied(run, where, output.name);
      program_.outputs.push_back({output.name, run.micro, where});
    }
  }

  // What is left to write of the values that exist. Values that sit in the buffer of a state which is written as well
  // move out first: a write sees the old contents of every state.
  void finish_writes(GraphRun& run) {
    for (Write& w : run.writes) {
      const BufferId source = run.buffer_of[index(w.write.value)];
      if (w.done || !is_state(source) || source == w.write.state) continue;
      const bool overwritten = std::any_of(run.writes.begin(), run.writes.end(), [&](const Write& other) {
        return !other.done && run.is_made(other.write.value) && other.write.state == source;
      });
      if (!overwritten) continue;
      run.settle(w.write.value, copied(run, run.operand(w.write.value), program_.buffers[index(source)].name));
    }
    for (Write& w : run.writes)
      if (!w.done && run.is_made(w.write.value)) finish_write(run, w);
  }

  Operand copied(const GraphRun& run, const Operand& source, const std::string& name) {
    Instruction copy;
    copy.kind = Instruction::Kind::copy;
    copy.name = name;
    copy.micro = run.micro;
    copy.phase = run.last_lowered == kNone ? ir::Phase::forward : run.graph.nodes[index(run.last_lowered)].phase;
    copy.inputs = {source};
    copy.outputs = {{new_buffer(name, source.type, Category::staging), source.type, 0, {}, values_.made()}};
    program_.instructions.push_back(copy);
    return copy.outputs.front();
  }

  void finish_write(GraphRun& run, Write& w) {
    const ir::State& state = module_.state(w.write.state);
    const TensorType& type = run.graph.type(w.write.value);
    const Operand value = run.operand(w.write.value);
    const std::int32_t producer = run.uses.producer[index(w.write.value)];
    const bool adds = w.write.mode == ir::Write::Mode::add && summed_[index(w.write.state)];
    w.done = true;
    if (value.buffer == w.write.state && w.write.mode == ir::Write::Mode::set) return;
    Instruction instruction;
    instruction.name = state.name;
    instruction.micro = run.micro;
    instruction.phase = producer == ir::kNone ? ir::Phase::forward : run.graph.nodes[index(producer)].phase;
    const Operand before = sum_here(run, w.write.state, instruction.phase, adds);
    Operand target = before;
    target.value = values_.made(target.buffer == w.write.state ? w.write.state : kNone);
    instruction.outputs = {target};
    if (adds) {
      instruction.op = &module_.registry->at("accumulate");
      instruction.inputs = {before, value};
    } else if (type.dtype != state.type.dtype) {
      instruction.op = &module_.registry->at("cast");
      instruction.attributes.set("to", std::string(trireme::name_of(state.type.dtype)));
      instruction.inputs = {value};
    } else {
      instruction.kind = Instruction::Kind::copy;
      instruction.inputs = {value};
    }
    if (w.write.mode == ir::Write::Mode::add) summed_[index(w.write.state)] = true;
    const ir::Phase phase = instruction.phase;
    program_.instructions.push_back(std::move(instruction));
    wrote(run, target);
    if (target.buffer == w.write.state) return;
    const Operand there{w.write.state, state.type, 0, {}, values_.made(w.write.state)};
    move(Instruction::Kind::store, run, state.name, phase, target, there);
    wrote(run, there);
  }

  bool is_state(BufferId buffer) const { return buffer >= 0 && index(buffer) < module_.states.size(); }

  const ir::Module& module_;
  const LowerOptions& options_;
  Program program_;
  Values values_;
  std::vector<bool> summed_;  // by state: has its first contribution
};

}  // namespace

Program emit(const ir::Module& module, const StateLayout& layout, const LowerOptions& options) {
  return Lowering(module, layout, options).run();
}

Program lower(const ir::Module& module, const StateLayout& layout, const LowerOptions& options) {
  Program program = emit(module, layout, options);
  run_passes(program, options);
  return program;
}

}  // namespace trireme::program
