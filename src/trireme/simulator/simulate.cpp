#include "trireme/simulator/simulate.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/program/launches.h"
#include "trireme/simulator/asynchronous.h"
#include "trireme/simulator/kernel.h"

namespace trireme::simulator {
namespace {

using compiler::Compiled;
using program::Instruction;
using program::Operand;

double bytes_of(const std::vector<Operand>& operands) {
  double bytes = 0;
  for (const Operand& o : operands)
    if (o.type.present) bytes += static_cast<double>(o.type.bytes());
  return bytes;
}

// Times instructions on a cluster. The micro-batches of a step repeat the same kernels: each is worked out once.
class Clock {
 public:
  Clock(const Compiled& compiled, const cluster::Cluster& cluster, const Cast& cast)
      : compiled_(compiled), cluster_(cluster), cast_(cast), known_(cast.actors.size()) {
    for (std::size_t a = 0; a < cast.actors.size(); ++a) {
      const program::Program& p = *cast.actors[a].program;
      const cluster::Device& device = cluster.device_of(cast.rank[a]);
      saved_.emplace_back(p.instructions.size(), 0.0);
      if (!cast.actors[a].captures) continue;
      saved_.back() = program::launch_savings(
          p, {.launch = device.launch,
              .graph_launch = device.graph_launch > 0 ? device.graph_launch : device.launch,
              .graph_kernel = device.graph_kernel > 0 ? device.graph_kernel : device.launch / 4});
    }
  }

  Duration of(std::size_t actor, std::size_t i) {
    const Instruction& instruction = cast_.actors[actor].program->instructions[i];
    const cluster::Ranks* own = cluster_.override_of(cast_.rank[actor]);
    switch (instruction.kind) {
      case Instruction::Kind::launch: {
        if (instruction.on_host) return host(instruction);
        const double speed = own == nullptr ? 1 : own->speed;
        const Known& known = look_up(actor, instruction);
        return {0, started(actor, i, known.seconds) / speed, Resource::compute, known.crowded};
      }
      case Instruction::Kind::collective: return collective(actor, i);
      case Instruction::Kind::send:
      case Instruction::Kind::receive: {
        const auto& moved = instruction.kind == Instruction::Kind::send ? instruction.inputs : instruction.outputs;
        return slower(message_time(cluster_, bytes_of(moved), cast_.spreads[cast_.group[actor][i]]), actor, i);
      }
      case Instruction::Kind::push:
      case Instruction::Kind::pull: return exchange(actor, i);
      case Instruction::Kind::input: return {};
      case Instruction::Kind::copy:
        return {0, started(actor, i, memory(actor, bytes_of(instruction.inputs) + bytes_of(instruction.outputs))),
                Resource::compute};
      case Instruction::Kind::store:
      case Instruction::Kind::load: return move(actor, instruction);
    }
    return {};
  }

  // Of the launches of one rank.
  struct Operations {
    std::map<std::string, double> all;  // by dtype
    double model = 0;                   // without what is recomputed
  };
  Operations operations(std::size_t actor) {
    Operations flops;
    for (const Instruction& i : cast_.actors[actor].program->instructions)
      if (i.kind == Instruction::Kind::launch && !i.on_host) {
        const Known& known = look_up(actor, i);
        flops.all[known.dtype] += known.flops;
        if (!i.recomputed) flops.model += known.flops;
      }
    return flops;
  }

 private:
  struct Known {
    double seconds = 0;
    double crowded = 0;
    double flops = 0;
    std::string dtype;
  };

  const Known& look_up(std::size_t actor, const Instruction& instruction) {
    // The same values of another micro-batch have the same name, op, phase and size.
    std::string key = instruction.name;
    if (!instruction.outputs.empty()) key += fmt::format(" {} ", instruction.outputs.front().type.bytes());
    key += static_cast<char>('0' + static_cast<int>(instruction.phase));
    key += instruction.accumulate ? '+' : '=';
    key += instruction.op->name;
    const auto [at, fresh] = known_[actor].try_emplace(std::move(key));
    if (fresh) {
      const Kernel kernel = kernel_of(instruction);
      const KernelSeconds time = timed_kernel(kernel, cluster_.device_of(cast_.rank[actor]), cluster_.current(),
                                              cast_.actors[actor].program->threads);
      at->second = {time.seconds, time.crowded, kernel.cost.flops, kernel.dtype};
    }
    return at->second;
  }

  // What a kernel takes that by itself would take `alone`: many are launched together, or replayed.
  double started(std::size_t actor, std::size_t i, double alone) const {
    return std::max(0.0, alone - saved_[actor][i]);
  }

  double memory(std::size_t actor, double bytes) const {
    const cluster::Device& device = cluster_.device_of(cast_.rank[actor]);
    return device.launch + bytes / (device.memory_bandwidth * device.memory_efficiency);
  }

  Duration host(const Instruction& instruction) const {
    const double bytes = bytes_of(instruction.inputs) + bytes_of(instruction.outputs);
    if (cluster_.host_bandwidth <= 0)
      refuse("cluster {}: host_bandwidth is missing, and the host's cores make the update", cluster_.name);
    return {0, bytes / cluster_.host_bandwidth, Resource::none};
  }

  Duration move(std::size_t actor, const Instruction& instruction) const {
    const program::Program& p = *cast_.actors[actor].program;
    const auto tier_of = [&](const Operand& o) { return p.buffers[static_cast<std::size_t>(o.buffer)].tier; };
    const int tier = std::max(tier_of(instruction.inputs.front()), tier_of(instruction.outputs.front()));
    const cluster::Tier& to = tier == program::kHostTier ? cluster_.host : cluster_.disk;
    if (to.bandwidth <= 0)
      refuse("cluster {}: [{}] is missing, and the plan moves tensors there", cluster_.name, program::tier_name(tier));
    return {to.latency, bytes_of(instruction.outputs) / to.bandwidth, Resource::copy};
  }

  Duration collective(std::size_t actor, std::size_t i) const {
    const Instruction& instruction = cast_.actors[actor].program->instructions[i];
    const std::string& name = instruction.op->name;
    comm::Collective kind = comm::Collective::all_to_all;
    double bytes = bytes_of(instruction.inputs);
    if (name == ops::kAllReduce) kind = comm::Collective::all_reduce;
    if (name == ops::kReduceScatter) kind = comm::Collective::reduce_scatter;
    if (name == ops::kAllGather) {
      kind = comm::Collective::all_gather;
      bytes = bytes_of(instruction.outputs);
    }
    return slower(
        collective_time(cluster_, kind, bytes, cast_.spreads[cast_.group[actor][i]], compiled_.plan.allreduce), actor,
        i);
  }

  // A worker's message to a rank that answers it, or from there. Where these wait for all workers, the workers that one
  // actor stands for send at the same time and share that rank's link; cores are shared by the walk.
  Duration exchange(std::size_t actor, std::size_t i) const {
    const Instruction& instruction = cast_.actors[actor].program->instructions[i];
    const bool push = instruction.kind == Instruction::Kind::push;
    Duration d = message_time(cluster_, bytes_of(push ? instruction.inputs : instruction.outputs),
                              cast_.spreads[cast_.group[actor][i]]);
    const std::optional<program::Exchange>& answered = compiled_.roles.back().exchange;
    if (answered && !answered->each && d.resource != Resource::cores) {
      d.busy *= answered->workers;
      for (const Actor::OnLink& on : cast_.actors[actor].link)
        if (on.actor == actor) d.per_link = on.ranks;
    }
    return slower(d, actor, i);
  }

  // By the slowest link of its members.
  Duration slower(Duration d, std::size_t actor, std::size_t i) const {
    if (cluster_.ranks.empty()) return d;
    double share = 1;
    if (members_.empty())
      for (const Meeting& meeting : cast_.meetings) {
        const Meeting::Member& first = meeting.members.front();
        members_[{first.actor, first.instruction}] = &meeting;
      }
    if (const auto found = members_.find({actor, i}); found != members_.end())
      for (const Meeting::Member& m : found->second->members)
        if (const cluster::Ranks* own = cluster_.override_of(cast_.rank[m.actor]))
          share = std::min(share, own->bandwidth);
    d.busy /= share;
    return d;
  }

  const Compiled& compiled_;
  const cluster::Cluster& cluster_;
  const Cast& cast_;
  std::vector<std::unordered_map<std::string, Known>> known_;  // by actor
  std::vector<std::vector<double>> saved_;                     // by actor and instruction: seconds of its launch
  mutable std::map<std::pair<std::size_t, std::size_t>, const Meeting*> members_;
};

// Where every worker's pushes are an update of their own, workers go at their own pace, but not faster than a rank
// answers all of them: seconds of a step of each.
double busiest_answering(const Compiled& compiled, const Simulation& s) {
  double most = 0;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    const compiler::Role& role = compiled.roles[s.cast.role[a]];
    if (!role.exchange || !role.exchange->each) continue;
    double one = 0;
    for (const Span& span : s.timeline.actors[a]) one += span.end - span.begin;
    most = std::max(most, one * role.exchange->workers);
  }
  return most;
}

}  // namespace

Simulation simulate(const Compiled& compiled, const cluster::Cluster& cluster) {
  if (compiled.asynchronous_pipeline()) return simulate_asynchronous(compiled, cluster);
  if (compiled.steps.empty()) fail("nothing was compiled that does a step");
  for (const cluster::Ranks& r : cluster.ranks)
    if (r.last >= compiled.ranks())
      refuse("cluster {}: ranks {} to {} differ, and the run has {}", cluster.name, r.first, r.last, compiled.ranks());
  Simulation s;
  s.cast = cast_of(compiled, compiled.steps.back().program, cluster);
  Clock clock(compiled, cluster, s.cast);
  s.timeline = walk(s.cast.actors, s.cast.meetings, s.cast.domains,
                    [&](std::size_t actor, std::size_t i) { return clock.of(actor, i); });
  s.step_seconds = std::max(s.timeline.seconds, busiest_answering(compiled, s)) + cluster.step;
  s.by_actor = time_by_kind(s.cast.actors, s.timeline, compiled.plan.stages() > 1);
  std::map<std::string, double> by_dtype;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    s.by_actor[a].waiting += s.step_seconds - s.timeline.seconds;
    const double share = static_cast<double>(s.cast.ranks[a]) / compiled.ranks();
    s.mean.compute += share * s.by_actor[a].compute;
    s.mean.exposed_communication += share * s.by_actor[a].exposed_communication;
    s.mean.bubble += share * s.by_actor[a].bubble;
    s.mean.waiting += share * s.by_actor[a].waiting;
    const auto operations = clock.operations(a);
    for (const auto& [dtype, flops] : operations.all) {
      by_dtype[dtype] += flops * s.cast.ranks[a];
      s.flops += flops * s.cast.ranks[a];
    }
    s.model_flops += operations.model * s.cast.ranks[a];
    const compiler::Role& role = compiled.roles[s.cast.role[a]];
    s.fits = s.fits && static_cast<double>(role.arena_bytes) <= cluster.memory_of(s.cast.rank[a], compiled.ranks());
  }
  const auto most = std::max_element(by_dtype.begin(), by_dtype.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    const cluster::Device& device = cluster.device_of(s.cast.rank[a]);
    const auto peak = most == by_dtype.end() ? device.flops.end() : device.flops.find(most->first);
    const double flops = (peak == device.flops.end() ? device.flops.begin() : peak)->second;
    // Ranks on a CPU share its cores.
    const double cores = device.kind != "cpu" ? 1
                                              : static_cast<double>(cluster.node.cores) /
                                                    static_cast<double>(cluster.ranks_of_node(compiled.ranks()));
    s.peak_flops += flops * cores * s.cast.ranks[a];
  }
  return s;
}

}  // namespace trireme::simulator
