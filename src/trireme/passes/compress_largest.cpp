#include <algorithm>
#include <cmath>

#include "trireme/passes/compressions.h"
#include "trireme/passes/own_momentum.h"

namespace trireme::passes {

using ir::kNone;
using ir::ValueId;

void compress_largest(GradientSums& sums, const CompressGradients::Options& options, bool all) {
  sums.drop_clip();
  const ValueId clip = sums.local_clip();
  struct Taken {
    const GradientSums::Sum* sum;
    OwnMomentum momentum;
    ValueId value;
    std::int64_t count;  // 0: all of it
  };
  std::vector<Taken> taken;
  for (const GradientSums::Sum& sum : sums.all()) {
    const std::int64_t n = sum.type.elements();
    if (all || n < kSmallGradient) {
      const OwnMomentum own = next_momentum(sums, sum, clip);
      taken.push_back({&sum, own, own.fresh, 0});
      continue;
    }
    const double decay = sums.update_of(sum.parameter).attributes.real("momentum");
    const ValueId momentum = own_momentum(sums, sum);
    const auto count = std::max<std::int64_t>(1, std::llround(options.fraction * static_cast<double>(n)));
    const ValueId unsent = options.error_feedback ? sums.own_state(sum.parameter + "/unsent", n) : kNone;
    const auto made =
        sums.add("take_largest", {sum.own, momentum, unsent, clip},
                 {{"decay", decay}, {"count", count}, {"mask", options.momentum_masking}}, sum.parameter + ".taken");
    if (unsent != kNone) sums.keep(unsent, sums.masked(sum.parameter, made[2]));
    taken.push_back({&sum, {momentum, made[1]}, made[0], count});
  }
  const auto added = [&](const Taken& t, ValueId parts) {
    return sums
        .add("add_taken", {parts}, {{"count", t.count}, {"shape", dims(t.sum->type.shape)}}, t.sum->parameter + ".grad")
        .front();
  };
  for (Taken& t : taken) {
    const bool gathered = t.count > 0 && !options.one_way;
    if (t.count > 0 && options.one_way) t.value = added(t, t.value);
    t.value = gathered ? sums.all_gather(t.value, t.sum->parameter + ".taken.all")
                       : sums.all_reduce(t.value, t.sum->parameter + ".velocity.sum");
  }
  for (const Taken& t : taken) {
    ValueId sum = t.value;
    if (t.count == 0)
      sum = sums.add("weighted_sum", {kNone, t.value, kNone, kNone}, {{"shape", dims(t.sum->type.shape)}},
                     t.sum->parameter + ".grad")
                .front();
    else if (!options.one_way)
      sum = added(t, t.value);
    sums.set(*t.sum, sum);
    descend(sums, *t.sum, sum, t.momentum);
  }
}

}  // namespace trireme::passes
