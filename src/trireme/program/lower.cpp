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
    case ir::Category::scalars: break;
  }
  return Category::staging;
}

class Lowering {
 public:
  Lowering(const ir::Module& module, const StateLayout& layout, const LowerOptions& options) : module_(module), options_(options) {
    program_.name = options.name;
    program_.device = options.device;
    program_.threads = options.threads;
    program_.micro_batches = options.micro_batches;
    program_.state_bytes = layout.bytes;
    for (std::size_t s = 0; s < module.states.size(); ++s) {
      const ir::State& state = module.states[s];
      Buffer buffer{state.name, state.type.bytes(), layout.offsets[s], category_of(state), static_cast<StateId>(s), kNone, kNone};
      if (state.step_local) {
        buffer.state = kNone;
        buffer.offset = 0;
      }
      program_.buffers.push_back(std::move(buffer));  // state s is buffer s
    }
    summed_.assign(module.states.size(), false);
  }

  Program run() {
    for (int micro = 0; micro < options_.micro_batches; ++micro) instance(module_.graph(options_.body), micro);
    if (!options_.tail.empty()) instance(module_.graph(options_.tail), 0);
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

  // One run of a graph. Values get buffers; writes decide where some of them go.
  void instance(const Graph& graph, int micro) {
    const ir::Uses uses(graph);
    buffer_of_.assign(graph.values.size(), kNone);
    place_state_values(graph);
    for (const ValueId id : graph.inputs) load_input(graph, id, micro);
    std::vector<Write> writes = plan_writes(graph, uses);
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) lower_node(graph, n, micro, writes);
    for (const Write& write : writes)
      if (!write.done) finish_write(graph, write, micro);
    for (const ir::Output& output : graph.outputs) {
      Operand operand{buffer_of_[index(output.value)], graph.type(output.value)};
      program_.outputs.push_back({output.name, micro, operand});
      kept_.insert(operand.buffer);
    }
  }

  void place_state_values(const Graph& graph) {
    for (std::size_t i = 0; i < graph.values.size(); ++i)
      if (graph.values[i].kind == ir::ValueInfo::Kind::state) buffer_of_[i] = graph.values[i].state;
  }

  void load_input(const Graph& graph, ValueId id, int micro) {
    const TensorType& type = graph.type(id);
    Instruction load;
    load.kind = Instruction::Kind::input;
    load.name = graph.value(id).name;
    load.micro = micro;
    load.outputs = {{new_buffer(load.name, type, Category::staging), type}};
    buffer_of_[index(id)] = load.outputs.front().buffer;
    program_.instructions.push_back(std::move(load));
  }

  // A write of a graph and how it is carried out.
  struct Write {
    ir::Write write;
    bool direct = false;  // the producing node may write the state's buffer itself
    bool done = false;
  };

  std::vector<Write> plan_writes(const Graph& graph, const ir::Uses& uses) {
    std::vector<Write> writes;
    std::vector<bool> taken(graph.values.size(), false);
    for (const ir::Write& write : graph.writes) {
      Write w{write, false, false};
      if (!taken[index(write.value)] && made_by_plain_node(graph, uses, write.value))
        w.direct = write.mode == ir::Write::Mode::set ? can_set_directly(graph, uses, write) : can_add_directly(graph, uses, write);
      if (w.direct) taken[index(write.value)] = true;
      writes.push_back(w);
    }
    return writes;
  }

  bool made_by_plain_node(const Graph& graph, const ir::Uses& uses, ValueId value) const {
    const std::int32_t producer = uses.producer[index(value)];
    if (producer == ir::kNone || graph.nodes[index(producer)].op->traits.view) return false;
    // A view of the value would keep reading the state's buffer after it changes.
    for (const std::int32_t consumer : uses.consumers[index(value)])
      if (graph.nodes[index(consumer)].op->traits.view) return false;
    return true;
  }

  // The node may write the new contents straight over the old ones when nobody reads the old ones later, and its op can
  // work in place if it reads them itself.
  bool can_set_directly(const Graph& graph, const ir::Uses& uses, const ir::Write& write) const {
    const std::int32_t producer = uses.producer[index(write.value)];
    const Node& node = graph.nodes[index(producer)];
    const auto output = static_cast<int>(std::find(node.outputs.begin(), node.outputs.end(), write.value) - node.outputs.begin());
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].kind != ir::ValueInfo::Kind::state || graph.values[v].state != write.state) continue;
      if (uses.escapes[v]) return false;
      for (const std::int32_t consumer : uses.consumers[v]) {
        if (consumer > producer || graph.nodes[index(consumer)].op->traits.view) return false;
        if (consumer != producer) continue;
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
          if (node.inputs[i] == static_cast<ValueId>(v) && !allows_in_place(*node.op, output, static_cast<int>(i))) return false;
      }
    }
    return true;
  }

  static bool allows_in_place(const ir::OpDef& op, int output, int input) {
    const auto& pairs = op.traits.in_place;
    return std::find(pairs.begin(), pairs.end(), std::pair(output, input)) != pairs.end();
  }

  // A contribution that nobody else reads may go straight to the sum's buffer.
  bool can_add_directly(const Graph& graph, const ir::Uses& uses, const ir::Write& write) const {
    if (!uses.consumers[index(write.value)].empty()) return false;
    if (graph.type(write.value) != module_.state(write.state).type) return false;
    return std::none_of(graph.values.begin(), graph.values.end(), [&](const ir::ValueInfo& v) {
      return v.kind == ir::ValueInfo::Kind::state && v.state == write.state;
    });
  }

  // The buffer of the state that output `id` of `node` is written to directly, if any. The first contribution to a sum
  // overwrites; later ones need a kernel that adds.
  BufferId direct_target(const Node& node, ValueId id, std::vector<Write>& writes, bool& accumulate) {
    for (Write& w : writes) {
      if (!w.direct || w.done || w.write.value != id) continue;
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

  void lower_node(const Graph& graph, std::size_t n, int micro, std::vector<Write>& writes) {
    const Node& node = graph.nodes[n];
    if (node.op->traits.view) {
      buffer_of_[index(node.outputs.front())] = buffer_of_[index(node.inputs.front())];
      finish_ready_sums(graph, node, micro, writes);
      return;
    }
    Instruction launch;
    launch.name = graph.value(node.outputs.front()).name;
    launch.op = node.op;
    launch.attributes = node.attributes;
    launch.phase = node.phase;
    launch.micro = micro;
    for (const ValueId id : node.inputs)
      launch.inputs.push_back(id == ir::kNone ? Operand{} : Operand{buffer_of_[index(id)], graph.type(id)});
    for (const ValueId id : node.outputs) {
      BufferId buffer = direct_target(node, id, writes, launch.accumulate);
      if (buffer == kNone) buffer = new_buffer(graph.value(id).name, graph.type(id), Category::activations);
      buffer_of_[index(id)] = buffer;
      launch.outputs.push_back({buffer, graph.type(id)});
    }
    emit(std::move(launch));
    finish_ready_sums(graph, node, micro, writes);
  }

  // Sums that a node could not write itself are added as soon as their value exists, so that it need not be kept.
  void finish_ready_sums(const Graph& graph, const Node& node, int micro, std::vector<Write>& writes) {
    for (const ValueId id : node.outputs)
      for (Write& w : writes)
        if (!w.done && w.write.mode == ir::Write::Mode::add && w.write.value == id) {
          finish_write(graph, w, micro);
          w.done = true;
        }
  }

  void finish_write(const Graph& graph, const Write& w, int micro) {
    const ir::State& state = module_.state(w.write.state);
    const TensorType& type = graph.type(w.write.value);
    const Operand value{buffer_of_[index(w.write.value)], type};
    const Operand target{w.write.state, state.type};
    Instruction instruction;
    instruction.name = state.name;
    instruction.micro = micro;
    instruction.phase = graph.nodes.empty() ? ir::Phase::forward : graph.nodes.back().phase;
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
    emit(std::move(instruction));
  }

  void emit(Instruction instruction) { program_.instructions.push_back(std::move(instruction)); }

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
      if (program_.buffers[index(id)].first != kNone) program_.buffers[index(id)].last = static_cast<std::int32_t>(program_.instructions.size()) - 1;
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
        const bool fits = dying.state == kNone && born.state == kNone && !is_step_state(input.buffer) && !is_step_state(output.buffer) &&
                          dying.last == static_cast<std::int32_t>(i) && born.first == static_cast<std::int32_t>(i) && dying.bytes == born.bytes &&
                          output.type.bytes() == input.type.bytes();
        if (!fits || read_twice(instruction, input.buffer)) continue;
        dying.last = born.last;
        born.first = born.last = kNone;
        now[index(output.buffer)] = input.buffer;
        output.buffer = input.buffer;
      }
    }
    for (NamedOutput& output : program_.outputs) output.operand.buffer = now[index(output.operand.buffer)];
  }

  bool is_step_state(BufferId buffer) const { return index(buffer) < module_.states.size(); }

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
  std::vector<BufferId> buffer_of_;  // by value, of the graph being lowered
  std::vector<bool> summed_;         // by state: has its first contribution
  std::set<BufferId> kept_;
};

}  // namespace

Program lower(const ir::Module& module, const StateLayout& layout, const LowerOptions& options) {
  return Lowering(module, layout, options).run();
}

}  // namespace trireme::program
