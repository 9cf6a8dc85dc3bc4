#include "trireme/planner/profile.h"

#include <algorithm>

#include "trireme/compiler/graph_passes.h"
#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/passes/chain.h"
#include "trireme/passes/stage.h"
#include "trireme/planner/remat_plan.h"
#include "trireme/planner/stages.h"
#include "trireme/simulator/collective_time.h"
#include "trireme/simulator/kernel.h"

namespace trireme::planner {
namespace {

using ir::Graph;
using ir::index;
using ir::kNone;
using ir::Node;
using simulator::Spread;

double bytes_of(const ir::Types& types) {
  double bytes = 0;
  for (const TensorType& type : types)
    if (type.present) bytes += static_cast<double>(type.bytes());
  return bytes;
}

class Profiler {
 public:
  Profiler(const ir::Module& module, const compiler::Plan& plan, const cluster::Cluster& cluster, std::size_t layers)
      : module_(module), micro_(module.graph("micro")), plan_(plan), cluster_(cluster) {
    profile_.layers.resize(layers);
    const int tp = plan.mesh.ranks();
    spread_ = simulator::spread_of(cluster, tp, 1);
  }

  Profile run() {
    add_times();
    add_bytes();
    add_update();
    return std::move(profile_);
  }

 private:
  LayerCost& layer(std::int32_t stage) { return profile_.layers[std::min(index(stage), profile_.layers.size() - 1)]; }

  double seconds(const Graph& graph, const Node& node) const {
    if (node.op->traits.view) return 0;
    const ir::Types inputs = graph.input_types(node);
    const ir::Types outputs = graph.output_types(node);
    if (node.op->traits.collective) {
      comm::Collective kind = comm::Collective::all_to_all;
      double bytes = bytes_of(inputs);
      if (node.op->name == ops::kAllReduce) kind = comm::Collective::all_reduce;
      if (node.op->name == ops::kReduceScatter) kind = comm::Collective::reduce_scatter;
      if (node.op->name == ops::kAllGather) {
        kind = comm::Collective::all_gather;
        bytes = bytes_of(outputs);
      }
      const simulator::Duration d = simulator::collective_time(cluster_, kind, bytes, spread_, plan_.allreduce);
      return simulator::seconds_together(cluster_, d);
    }
    const simulator::Kernel kernel = simulator::kernel_of(*node.op, inputs, outputs, node.attributes);
    return simulator::kernel_seconds(kernel, cluster_.device, cluster_.current(), plan_.threads);
  }

  void add_times() {
    std::vector<double> recomputed(profile_.layers.size(), 0);
    for (const Node& node : micro_.nodes) {
      if (node.barrier && !node.op->traits.view)
        recomputed[std::min(index(node.stage), recomputed.size() - 1)] += bytes_of(micro_.output_types(node));
      LayerCost& own = layer(node.stage);
      const double t = seconds(micro_, node);
      if (node.op->traits.collective) own.communication += t;
      switch (node.phase) {
        case ir::Phase::forward: own.forward += t; break;
        case ir::Phase::input_gradient: own.backward += t; break;
        case ir::Phase::weight_gradient: own.weight_gradient += t; break;
        case ir::Phase::update: break;
      }
      own.transient = std::max(own.transient, bytes_of(micro_.input_types(node)) + bytes_of(micro_.output_types(node)));
    }
    // What crosses from one layer to the next.
    const ir::Uses uses(micro_);
    for (std::size_t v = 0; v < micro_.values.size(); ++v) {
      const std::int32_t producer = uses.producer[v];
      if (producer == kNone || micro_.nodes[index(producer)].phase != ir::Phase::forward) continue;
      const std::int32_t from = micro_.nodes[index(producer)].stage;
      const auto crosses = [&](std::int32_t reader) {
        const Node& node = micro_.nodes[index(reader)];
        return node.phase == ir::Phase::forward && node.stage > from;
      };
      if (std::any_of(uses.consumers[v].begin(), uses.consumers[v].end(), crosses))
        layer(from).message += static_cast<double>(micro_.values[v].type.bytes());
    }
  }

  void add_bytes() {
    const std::vector<PieceBytes> bytes = piece_bytes(module_, profile_.layers.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      profile_.layers[i].saved = bytes[i].saved;
      profile_.layers[i].state = bytes[i].state;
      profile_.layers[i].tied = bytes[i].tied;
    }
  }

  void add_update() {
    if (!module_.has_graph("update")) return;
    double time = 0;
    const Graph& update = module_.graph("update");
    for (const Node& node : update.nodes)
      if (!node.op->traits.collective) time += seconds(update, node);
    const StateBytes all = profile_.total().state;
    const double bytes = all.masters + all.weights + all.gradients + all.optimizer;
    if (bytes > 0) profile_.update_per_byte = time / bytes;
  }

  const ir::Module& module_;
  const Graph& micro_;
  const compiler::Plan& plan_;
  const cluster::Cluster& cluster_;
  Spread spread_;
  Profile profile_;
};

}  // namespace

LayerCost Profile::total() const {
  LayerCost sum;
  for (const LayerCost& l : layers) {
    sum.forward += l.forward;
    sum.backward += l.backward;
    sum.weight_gradient += l.weight_gradient;
    sum.communication += l.communication;
    sum.saved += l.saved;
    sum.transient = std::max(sum.transient, l.transient);
    sum.state += l.state;
  }
  return sum;
}

Profile extended(const Profile& one, const Profile& two, double further) {
  Profile result = two;
  const auto extend = [&](double LayerCost::*what) {
    for (std::size_t i = 0; i < result.layers.size(); ++i)
      result.layers[i].*what += further * (two.layers[i].*what - one.layers[i].*what);
  };
  for (double LayerCost::*what :
       {&LayerCost::forward, &LayerCost::backward, &LayerCost::weight_gradient, &LayerCost::communication,
        &LayerCost::saved, &LayerCost::transient, &LayerCost::message})
    extend(what);
  return result;
}

Profile profile_of(const compiler::Graphs& graphs, compiler::Plan plan, const RematPolicy& remat,
                   const cluster::Cluster& cluster, std::int64_t layers) {
  ir::Module module = graphs.module;
  const bool recomputes = remat.kind != RematPolicy::Kind::none;
  if (recomputes) plan.recompute.emplace();
  compiler::graph_passes(graphs, plan).run(module, {.until = "autodiff"});
  // Gradients, collectives and recomputed values belong to the layer of what they are made for.
  const ir::Graph& forward = module.graph("micro");
  const std::vector<bool> free = passes::free_values(module, forward);
  const auto here = std::ssize(passes::layer_begins(passes::find_stage_chain(forward, free)));
  if (here > 1) {
    const auto parts = static_cast<int>(here);
    const std::vector<std::int64_t> one_each(static_cast<std::size_t>(here), 1);
    passes::Stage({.parts = parts, .cuts = stage_cuts(module, "micro", parts, one_each, cost::Rates::of(plan.device))})
        .run(module);
  }
  if (recomputes) {
    compiler::graph_passes(graphs, plan).run(module, {.from = "autodiff", .until = "remat"});
    const ir::Graph& micro = module.graph("micro");
    const passes::Chain chain = passes::find_chain(micro);
    plan.recompute = forgotten_names(micro, chain, plan_remat(chain, remat));
  }
  compiler::graph_passes(graphs, plan).run(module, {.from = recomputes ? "remat" : "autodiff", .until = "validate"});
  Profile profile = Profiler(module, plan, cluster, static_cast<std::size_t>(std::max<std::int64_t>(1, here))).run();
  if (layers > here) {
    TRI_CHECK(here >= 3, "{} layers do not stand for {}", here, layers);
    const LayerCost middle = profile.layers[static_cast<std::size_t>(here) / 2];
    profile.layers.insert(profile.layers.begin() + 1, static_cast<std::size_t>(layers - here), middle);
  }
  return profile;
}

}  // namespace trireme::planner
