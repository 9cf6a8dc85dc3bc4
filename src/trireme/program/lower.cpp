#include "trireme/program/lower.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/program/memory_plan.h"

namespace trireme::program {
namespace {

using ir::Graph;
using ir::Node;
using ir::StateId;
using ir::ValueId;

std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

Category category_of(const ir::State& state) {
  switch (state.category) {
    case ir::Category::weights:
    case ir::Category::statistics: return Category::weights;
    case ir::Category::gradients: return Category::gradients;
    case ir::Category::optimizer: return Category::optimizer;
    case ir::Category::cache: return Category::activations;
    case ir::Category::scalars: break;
  }
  return Category::staging;
}

class Lowering {
 public:
  Lowering(const ir::Module& module, const StateLayout& layout, const LowerOptions& options)
      : module_(module), options_(options) {
    program_.name = options.name;
    program_.device = options.device;
    program_.threads = options.threads;
    program_.micro_batches = options.micro_batches;
    program_.state_bytes = layout.bytes;
    for (std::size_t s = 0; s < module.states.size(); ++s) {
      const ir::State& state = module.states[s];
      Buffer buffer{
          state.name, state.type.bytes(), layout.offsets[s], category_of(state), static_cast<StateId>(s), kNone, kNone};
      if (state.step_local) {
        buffer.state = kNone;
        buffer.offset = 0;
      }
      program_.buffers.push_back(std::move(buffer));  // state s is buffer s
    }
    if (layout.staging_bytes > 0)
      program_.buffers.push_back(
          {"checkpoint", layout.staging_bytes, layout.staging, Category::staging, kStaging, kNone, kNone});
    summed_.assign(module.states.size(), false);
  }

  Program run() {
    const Graph& body = module_.graph(options_.body);
    const Graph* tail = options_.tail.empty() ? nullptr : &module_.graph(options_.tail);
    for (int micro = 0; micro < options_.micro_batches; ++micro) {
      std::vector<const Graph*> later;
      if (micro + 1 < options_.micro_batches) later.push_back(&body);
      if (tail != nullptr) later.push_back(tail);
      run_graph(body, micro, later);
    }
    if (tail != nullptr) run_graph(*tail, 0, {});
    find_lifetimes();
    if (options_.reuse_in_place) reuse_dying_inputs();
    add_workspaces();
    plan_memory(program_);
    return std::move(program_);
  }

 private:
  BufferId new_buffer(const std::string& name, const TensorType& type, Category category) {
    program_.buffers.push_back({name, type.bytes(), 0, category, kNone, kNone, kNone});
    return static_cast<BufferId>(program_.buffers.size()) - 1;
  }

  // A write of a graph and how it is carried out.
  struct Write {
    ir::Write write;
    bool direct = false;  // the producing node may write the state's buffer itself
    bool done = false;
  };

  // One run of a graph.
  struct Instance {
    Instance(const ir::Module& module, const Graph& g, int m)
        : graph(g),
          micro(m),
          uses(g),
          read_of(module.states.size(), ir::kNone),
          writes_of(g.values.size()),
          buffer_of(g.values.size(), kNone) {
      for (std::size_t v = 0; v < g.values.size(); ++v) {
        if (g.values[v].kind != ir::ValueInfo::Kind::state) continue;
        read_of[index(g.values[v].state)] = static_cast<ValueId>(v);
        buffer_of[v] = g.values[v].state;
      }
      for (const ir::Write& write : g.writes) {
        writes_of[index(write.value)].push_back(writes.size());
        writes.push_back({write, false, false});
      }
    }

    const Graph& graph;
    int micro;
    ir::Uses uses;
    std::vector<ValueId> read_of;  // by state
    std::vector<Write> writes;
    std::vector<std::vector<std::size_t>> writes_of;  // by value: indices into `writes`
    std::vector<BufferId> buffer_of;                  // by value
  };

  // Values get buffers; writes decide where some of them go. `later` are the graphs that run after this one.
  void run_graph(const Graph& graph, int micro, const std::vector<const Graph*>& later) {
    Instance run(module_, graph, micro);
    for (const ValueId id : graph.inputs) load_input(run, id);
    plan_writes(run);
    for (const Node& node : graph.nodes) lower_node(run, node);
    keep_outputs(run, later);
    finish_writes(run);
  }

  void load_input(Instance& run, ValueId id) {
    const TensorType& type = run.graph.type(id);
    Instruction load;
    load.kind = Instruction::Kind::input;
    load.name = run.graph.value(id).name;
    load.micro = run.micro;
    load.outputs = {{new_buffer(load.name, type, Category::staging), type}};
    run.buffer_of[index(id)] = load.outputs.front().buffer;
    program_.instructions.push_back(std::move(load));
  }

  void plan_writes(Instance& run) const {
    std::vector<bool> taken(run.graph.values.size(), false);
    for (const ir::Output& output : run.graph.outputs) taken[index(output.value)] = true;
    for (Write& w : run.writes) {
      const std::size_t value = index(w.write.value);
      if (taken[value] || !made_by_plain_node(run, w.write.value)) continue;
      w.direct = w.write.mode == ir::Write::Mode::set ? can_set_directly(run, w.write) : can_add_directly(run, w.write);
      taken[value] = w.direct;
    }
  }

  static bool made_by_plain_node(const Instance& run, ValueId value) {
    const std::int32_t producer = run.uses.producer[index(value)];
    if (producer == ir::kNone || run.graph.nodes[index(producer)].op->traits.view) return false;
    // A view of the value would keep reading the state's buffer after it changes.
    for (const std::int32_t consumer : run.uses.consumers[index(value)])
      if (run.graph.nodes[index(consumer)].op->traits.view) return false;
    return true;
  }

  // The node may write the new contents straight over the old ones when nobody reads the old ones later, and its op can
  // work in place if it reads them itself.
  static bool can_set_directly(const Instance& run, const ir::Write& write) {
    const ValueId read = run.read_of[index(write.state)];
    if (read == ir::kNone) return true;
    if (run.uses.escapes[index(read)]) return false;
    const std::int32_t producer = run.uses.producer[index(write.value)];
    const Node& node = run.graph.nodes[index(producer)];
    const auto output =
        static_cast<int>(std::find(node.outputs.begin(), node.outputs.end(), write.value) - node.outputs.begin());
    for (const std::int32_t consumer : run.uses.consumers[index(read)]) {
      if (consumer > producer || run.graph.nodes[index(consumer)].op->traits.view) return false;
      if (consumer != producer) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] == read && !allows_in_place(*node.op, output, static_cast<int>(i))) return false;
    }
    return true;
  }

  static bool allows_in_place(const ir::OpDef& op, int output, int input) {
    const auto& pairs = op.traits.in_place;
    return std::find(pairs.begin(), pairs.end(), std::pair(output, input)) != pairs.end();
  }

  // A contribution that nobody else wants may go straight to the sum's buffer.
  bool can_add_directly(const Instance& run, const ir::Write& write) const {
    return run.uses.consumers[index(write.value)].empty() && run.writes_of[index(write.value)].size() == 1 &&
           run.graph.type(write.value) == module_.state(write.state).type &&
           run.read_of[index(write.state)] == ir::kNone;
  }

  // The buffer of the state that output `id` of `node` is written to directly, if any. The first contribution to a sum
  // overwrites; later ones need a kernel that adds.
  BufferId direct_target(Instance& run, const Node& node, ValueId id, bool& accumulate) {
    for (const std::size_t i : run.writes_of[index(id)]) {
      Write& w = run.writes[i];
      if (!w.direct) continue;
      if (w.write.mode == ir::Write::Mode::add) {
        const bool adds = summed_[index(w.write.state)];
        if (adds && !(node.op->traits.accumulates && node.outputs.front() == id)) return kNone;
        accumulate = accumulate || adds;
        summed_[index(w.write.state)] = true;
      }
      w.done = true;
      return w.write.state;
    }
    return kNone;
  }

  void lower_node(Instance& run, const Node& node) {
    if (node.op->traits.view)
      run.buffer_of[index(node.outputs.front())] = run.buffer_of[index(node.inputs.front())];
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

  void launch_node(Instance& run, const Node& node) {
    Instruction launch;
    launch.name = run.graph.value(node.outputs.front()).name;
    launch.op = node.op;
    launch.attributes = node.attributes;
    launch.phase = node.phase;
    launch.micro = run.micro;
    for (const ValueId id : node.inputs)
      launch.inputs.push_back(id == ir::kNone ? Operand{} : Operand{run.buffer_of[index(id)], run.graph.type(id)});
    for (const ValueId id : node.outputs) {
      BufferId buffer = direct_target(run, node, id, launch.accumulate);
      if (buffer == kNone) buffer = new_buffer(run.graph.value(id).name, run.graph.type(id), Category::activations);
      run.buffer_of[index(id)] = buffer;
      launch.outputs.push_back({buffer, run.graph.type(id)});
    }
    program_.instructions.push_back(std::move(launch));
  }

  // Outputs are read when the program is done: one that sits in a state's buffer moves out if that is written later.
  void keep_outputs(Instance& run, const std::vector<const Graph*>& later) {
    const auto written_by = [](const Graph& graph, BufferId state) {
      return std::any_of(graph.writes.begin(), graph.writes.end(),
                         [&](const ir::Write& w) { return w.state == state; });
    };
    for (const ir::Output& output : run.graph.outputs) {
      Operand operand{run.buffer_of[index(output.value)], run.graph.type(output.value)};
      const bool overwritten =
          is_state(operand.buffer) &&
          (written_by(run.graph, operand.buffer) ||
           std::any_of(later.begin(), later.end(), [&](const Graph* g) { return written_by(*g, operand.buffer); }));
      if (overwritten) operand = copied(run, operand, output.name);
      program_.outputs.push_back({output.name, run.micro, operand});
      kept_.insert(operand.buffer);
    }
  }

  // What is left to write when all nodes are done. Values that sit in the buffer of a state which is written as well
  // move out first: a write sees the old contents of every state.
  void finish_writes(Instance& run) {
    for (Write& w : run.writes) {
      BufferId& source = run.buffer_of[index(w.write.value)];
      if (w.done || !is_state(source) || source == w.write.state) continue;
      const bool overwritten = std::any_of(run.writes.begin(), run.writes.end(), [&](const Write& other) {
        return !other.done && other.write.state == source;
      });
      if (overwritten)
        source = copied(run, {source, run.graph.type(w.write.value)}, program_.buffers[index(source)].name).buffer;
    }
    for (Write& w : run.writes)
      if (!w.done) finish_write(run, w);
  }

  Operand copied(const Instance& run, const Operand& source, const std::string& name) {
    Instruction copy;
    copy.kind = Instruction::Kind::copy;
    copy.name = name;
    copy.micro = run.micro;
    copy.phase = run.graph.nodes.empty() ? ir::Phase::forward : run.graph.nodes.back().phase;
    copy.inputs = {source};
    copy.outputs = {{new_buffer(name, source.type, Category::staging), source.type}};
    program_.instructions.push_back(copy);
    return copy.outputs.front();
  }

  void finish_write(const Instance& run, Write& w) {
    const ir::State& state = module_.state(w.write.state);
    const TensorType& type = run.graph.type(w.write.value);
    const Operand value{run.buffer_of[index(w.write.value)], type};
    const Operand target{w.write.state, state.type};
    const std::int32_t producer = run.uses.producer[index(w.write.value)];
    w.done = true;
    if (value.buffer == target.buffer && w.write.mode == ir::Write::Mode::set) return;
    Instruction instruction;
    instruction.name = state.name;
    instruction.micro = run.micro;
    instruction.phase = producer == ir::kNone ? ir::Phase::forward : run.graph.nodes[index(producer)].phase;
    instruction.outputs = {target};
    if (w.write.mode == ir::Write::Mode::add && summed_[index(w.write.state)]) {
      instruction.op = &module_.registry->at("accumulate");
      instruction.inputs = {target, value};
    } else if (type.dtype != state.type.dtype) {
      instruction.op = &module_.registry->at("cast");
      instruction.attributes.set("to", std::string(trireme::name_of(state.type.dtype)));
      instruction.inputs = {value};
    } else {
      instruction.kind = Instruction::Kind::copy;
      instruction.inputs = {value};
    }
    if (w.write.mode == ir::Write::Mode::add) summed_[index(w.write.state)] = true;
    program_.instructions.push_back(std::move(instruction));
  }

  void find_lifetimes() {
    for (Buffer& b : program_.buffers) b.first = b.last = kNone;
    const auto touch = [&](const Operand& operand, std::size_t i) {
      if (operand.buffer == kNone) return;
      Buffer& b = program_.buffers[index(operand.buffer)];
      if (b.first == kNone) b.first = static_cast<std::int32_t>(i);
      b.last = static_cast<std::int32_t>(i);
    };
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const Operand& o : program_.instructions[i].inputs) touch(o, i);
      for (const Operand& o : program_.instructions[i].outputs) touch(o, i);
    }
    // Outputs are read when the program is done.
    for (const BufferId id : kept_)
      if (program_.buffers[index(id)].first != kNone)
        program_.buffers[index(id)].last = static_cast<std::int32_t>(program_.instructions.size()) - 1;
  }

  // An output takes over the buffer of an input that dies here, where the op can work in place.
  void reuse_dying_inputs() {
    std::vector<BufferId> now(program_.buffers.size());
    for (std::size_t i = 0; i < now.size(); ++i) now[i] = static_cast<BufferId>(i);
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      for (Operand& o : instruction.inputs)
        if (o.buffer != kNone) o.buffer = now[index(o.buffer)];
      for (Operand& o : instruction.outputs) o.buffer = now[index(o.buffer)];
      if (instruction.op == nullptr || instruction.accumulate) continue;
      for (const auto& [out, in] : instruction.op->traits.in_place) {
        if (index(out) >= instruction.outputs.size() || index(in) >= instruction.inputs.size()) continue;
        Operand& output = instruction.outputs[index(out)];
        const Operand& input = instruction.inputs[index(in)];
        if (input.buffer == kNone || input.buffer == output.buffer) continue;
        Buffer& dying = program_.buffers[index(input.buffer)];
        Buffer& born = program_.buffers[index(output.buffer)];
        const bool fits = !is_state(input.buffer) && !is_state(output.buffer) &&
                          dying.last == static_cast<std::int32_t>(i) && born.first == static_cast<std::int32_t>(i) &&
                          dying.bytes == born.bytes && output.type.bytes() == input.type.bytes();
        if (!fits || kept_.contains(input.buffer) || read_twice(instruction, input.buffer)) continue;
        if (kept_.contains(output.buffer)) kept_.insert(input.buffer);
        dying.last = born.last;
        born.first = born.last = kNone;
        now[index(output.buffer)] = input.buffer;
        output.buffer = input.buffer;
      }
    }
    for (NamedOutput& output : program_.outputs) output.operand.buffer = now[index(output.operand.buffer)];
  }

  bool is_state(BufferId buffer) const { return buffer >= 0 && index(buffer) < module_.states.size(); }

  static bool read_twice(const Instruction& instruction, BufferId buffer) {
    int uses = 0;
    for (const Operand& o : instruction.inputs) uses += o.buffer == buffer ? 1 : 0;
    for (const Operand& o : instruction.outputs) uses += o.buffer == buffer ? 1 : 0;
    return uses > 1;
  }

  void add_workspaces() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      if (instruction.kind != Instruction::Kind::launch) continue;
      try {
        add_workspace(instruction, static_cast<std::int32_t>(i));
      } catch (Error& e) {
        throw e.within(fmt::format("lowering {} '{}'", instruction.op->name, instruction.name));
      }
    }
  }

  void add_workspace(Instruction& instruction, std::int32_t at) {
    ir::Types inputs;
    ir::Types outputs;
    for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
    for (const Operand& o : instruction.outputs) outputs.push_back(o.type);
    const ir::KernelSpec spec{inputs, outputs, instruction.attributes, options_.threads, instruction.accumulate};
    const auto kernel = instruction.op->kernels.find(options_.device);
    if (kernel == instruction.op->kernels.end() || !kernel->second.supports(spec)) {
      std::vector<std::string> types;
      for (const TensorType& t : inputs)
        if (t.present) types.push_back(t.str());
      fail("no {} kernel for {}({})", device::name_of(options_.device), instruction.op->name, fmt::join(types, ", "));
    }
    const std::size_t bytes = kernel->second.workspace ? kernel->second.workspace(spec) : 0;
    if (bytes == 0) return;
    const TensorType type{DType::u8, {static_cast<std::int64_t>(bytes)}};
    instruction.workspace = {new_buffer(instruction.name, type, Category::workspace), type};
    program_.buffers.back().first = program_.buffers.back().last = at;
  }

  const ir::Module& module_;
  const LowerOptions& options_;
  Program program_;
  std::vector<bool> summed_;  // by state: has its first contribution
  std::set<BufferId> kept_;   // outputs
};

}  // namespace

Program lower(const ir::Module& module, const StateLayout& layout, const LowerOptions& options) {
  return Lowering(module, layout, options).run();
}

}  // namespace trireme::program
