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
    if (unsent != kNone) sums.keep(unsent, made[2]);
    taken.push_back({&sum, {momentum, made[1]}, made[0], count});
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
    descend(sums, *t.sum, sum, t.momentum);
  }
}

}  // namespace trireme::passes
