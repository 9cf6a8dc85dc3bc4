#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/passes/compressions.h"

namespace trireme::passes {
namespace {

using ir::kNone;
using ir::Node;
using ir::StateId;
using ir::ValueId;

std::vector<std::int64_t> dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

constexpr const char* kOwnMomentum = "/own_momentum";

// The parameter's step along the sum: it is the momentum already. The state of the momentum is set to the rank's own.
void descend(GradientSums& sums, const GradientSums::Sum& sum, ValueId direction, ValueId momentum, ValueId fresh) {
  const Node& node = sums.update_of(sum.parameter);
  if (node.op->name != "sgd") fail("momenta of each rank's own are sgd's; the update is {}", node.op->name);
  sums.replace(node, [&sums, node, name = sum.parameter, direction, momentum, fresh] {
    Rebuild& rebuild = sums.rebuild();
    const auto given = rebuild.mapped(std::vector<ValueId>{node.inputs[0], node.inputs[3], node.inputs[5]});
    const auto made =
        sums.add("descend", {given[0], direction, kNone, given[1], kNone, given[2]},
                 {{"weight_decay", node.attributes.real("weight_decay")}, {"low", node.attributes.text("low")}},
                 name + ".descend");
    rebuild.map(node.outputs[0], made[0]);
    rebuild.map(node.outputs[1], sums.add("select", {given[2], fresh, momentum}, {}, name + ".momentum.kept").front());
    if (node.outputs.size() > 2) rebuild.map(node.outputs[2], made[1]);
  });
}

}  // namespace

void own_momenta(ir::Module& module, const std::string& axis) {
  ir::Graph& init = module.graph("init");
  for (std::size_t s = 0; s < module.states.size(); ++s) {
    ir::State& state = module.states[s];
    constexpr std::string_view kMomentum = "/momentum";
    if (state.category != ir::Category::optimizer || !state.name.ends_with(kMomentum)) continue;
    state.name = state.name.substr(0, state.name.size() - kMomentum.size()) + kOwnMomentum;
    const std::int64_t elements = state.type.elements();
    state.type.shape = {1, elements};
    state.whole = {module.mesh.size_of(axis), elements};
    state.sharding.dims = {{axis}, {}};
    const ir::Write& write = *std::find_if(init.writes.begin(), init.writes.end(),
                                           [&](const ir::Write& w) { return w.state == static_cast<StateId>(s); });
    for (Node& node : init.nodes)
      if (node.outputs.front() == write.value) {
        node.attributes.set("shape", dims(state.type.shape));
        init.value(write.value).type = state.type;
      }
  }
}

void compress_largest(GradientSums& sums, const CompressGradients::Options& options, bool all) {
  sums.drop_clip();
  const ValueId clip = sums.local_clip();
  struct Taken {
    const GradientSums::Sum* sum;
    ValueId momentum;
    ValueId fresh;
    ValueId value;
    std::int64_t count;  // 0: all of it
  };
  std::vector<Taken> taken;
  for (const GradientSums::Sum& sum : sums.all()) {
    const std::int64_t n = sum.type.elements();
    const double decay = sums.update_of(sum.parameter).attributes.real("momentum");
    const ValueId momentum = sums.own_state(sum.parameter + kOwnMomentum, n);
    if (all || n < kSmallGradient) {
      const ValueId fresh = sums.add("weighted_sum", {momentum, sum.own, clip, kNone},
                                     {{"a_weight", decay}, {"shape", dims({1, n})}}, sum.parameter + ".velocity")
                                .front();
      taken.push_back({&sum, momentum, fresh, fresh, 0});
      continue;
    }
    const auto count = std::max<std::int64_t>(1, std::llround(options.fraction * static_cast<double>(n)));
    const ValueId unsent = options.error_feedback ? sums.own_state(sum.parameter + "/unsent", n) : kNone;
    const auto made = sums.add("take_largest", {sum.own, momentum, unsent, clip}, {{"decay", decay}, {"count", count}},
                               sum.parameter + ".taken");
    if (unsent != kNone) sums.keep(unsent, made[2]);
    taken.push_back({&sum, momentum, made[1], made[0], count});
  }
  for (Taken& t : taken)
    t.value = t.count == 0 ? sums.all_reduce(t.value, t.sum->parameter + ".velocity.sum")
                           : sums.all_gather(t.value, t.sum->parameter + ".taken.all");
  for (const Taken& t : taken) {
    const std::vector<std::int64_t> shape = dims(t.sum->type.shape);
    const ValueId sum =
        t.count == 0
            ? sums.add("weighted_sum", {kNone, t.value, kNone, kNone}, {{"shape", shape}}, t.sum->parameter + ".grad")
                  .front()
            : sums.add("add_taken", {t.value}, {{"count", t.count}, {"shape", shape}}, t.sum->parameter + ".grad")
                  .front();
    sums.set(*t.sum, sum);
    descend(sums, *t.sum, sum, t.momentum, t.fresh);
  }
}

}  // namespace trireme::passes
