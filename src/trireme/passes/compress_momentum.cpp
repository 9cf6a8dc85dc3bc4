#include <cmath>

#include "trireme/core/error.h"
#include "trireme/passes/compressions.h"

namespace trireme::passes {

using ir::kNone;
using ir::Node;
using ir::ValueId;

void compress_momentum(GradientSums& sums, const CompressGradients::Options& options) {
  sums.drop_clip();
  const ValueId clip = sums.local_clip();
  std::vector<Term> packed;
  std::vector<Term> plain;
  for (const GradientSums::Sum& sum : sums.all()) {
    const Node& node = sums.update_of(sum.parameter);
    if (node.op->name != "adamw") fail("the momentum that travels is adamw's; the update is {}", node.op->name);
    const double beta1 = node.attributes.real("beta1");
    const TensorType type{DType::f32, sum.type.shape};
    const ValueId term =
        sums.add("weighted_sum", {sums.rebuild().mapped(node.inputs[2]), sum.own, clip, kNone},
                 {{"a_weight", beta1 / sums.parts()}, {"b_weight", 1 - beta1}, {"shape", dims(type.shape)}},
                 sum.parameter + ".momentum")
            .front();
    (type.elements() < kSmallGradient ? plain : packed).push_back({&sum, term, kNone, type});
  }
  const auto finish = [&](const Term& term, ValueId momentum) {
    sums.set(*term.sum, momentum);
    const Node& node = sums.update_of(term.sum->parameter);
    sums.replace(node, [&sums, &options, node, name = term.sum->parameter, momentum] {
      Rebuild& rebuild = sums.rebuild();
      // param, grad, m, v, lr, step, clip, finite
      const std::vector<ValueId> in = rebuild.mapped(node.inputs);
      const ir::Attributes& a = node.attributes;
      const double known =
          1 - std::pow(a.real("beta2"), static_cast<double>(options.warmup * options.updates_per_step));
      const auto made = sums.add("descend", {in[0], momentum, in[3], in[4], in[5], in[7], sums.kept_of(name)},
                                 {{"beta1", a.real("beta1")},
                                  {"variance_scale", 1 / known},
                                  {"eps", a.real("eps")},
                                  {"weight_decay", a.real("weight_decay")},
                                  {"low", a.text("low")}},
                                 name + ".descend");
      rebuild.map(node.outputs[0], made[0]);
      rebuild.map(node.outputs[1],
                  sums.masked(name, sums.add("select", {in[7], momentum, in[2]}, {}, name + ".m.kept").front()));
      rebuild.map(node.outputs[2], sums.masked(name, in[3]));
      if (node.outputs.size() > 3) rebuild.map(node.outputs[3], made[1]);
    });
  };
  const std::vector<ValueId> sent = sum_in_chunks(sums, options, packed);
  for (std::size_t i = 0; i < packed.size(); ++i) finish(packed[i], sent[i]);
  for (Term& t : plain) t.value = sums.all_reduce(t.value, t.sum->parameter + ".momentum.sum");
  for (const Term& t : plain) finish(t, t.value);
}

}  // namespace trireme::passes
