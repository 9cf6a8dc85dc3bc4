#include "trireme/planner/memory_limit.h"

#include <algorithm>
#include <limits>

namespace trireme::planner {
namespace {

using Lowered = std::function<Trial(const Saving&)>;

// Whether a is to be preferred.
bool better(const Choice& a, const Choice& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? a.trial.seconds < b.trial.seconds : a.trial.peak < b.trial.peak;
}

class LimitSearch {
 public:
  LimitSearch(std::uint64_t limit, const Lowered& lowered) : limit_(limit), lowered_(lowered) {}

  Choice tried(const Saving& saving) const {
    const Trial trial = lowered_(saving);
    return {saving, trial, trial.peak <= limit_, trial.seconds};
  }

  // The number of activations to move with which this plan takes least time. The fewest that make it
  // fit are not always the fastest: few copies leave little room to wait in (program/copies.h), and then hold up more.
  Choice moved_to_fit(const Choice& unmoved) const {
    if (unmoved.fits) return unmoved;
    const RematPlan& plan = unmoved.saving.remat;
    Choice fewest = tried({plan, std::numeric_limits<std::size_t>::max()});
    const std::size_t all = fewest.saving.moved = fewest.trial.movable;
    if (!fewest.fits) return fewest;
    Choice best = fewest;
    for (std::size_t least = 1; least < fewest.saving.moved;) {
      const std::size_t middle = least + (fewest.saving.moved - least) / 2;
      if (const Choice fewer = tried({plan, middle}); fewer.fits)
        fewest = fewer;
      else
        least = middle + 1;
    }
    for (std::size_t moved = fewest.saving.moved; moved < all; moved += moved / 2 + 1)
      if (const Choice more = moved == fewest.saving.moved ? fewest : tried({plan, moved}); better(more, best))
        best = more;
    return best;
  }

 private:
  std::uint64_t limit_;
  const Lowered& lowered_;
};

}  // namespace

Choice moved_to_fit(std::uint64_t limit, const RematPlan& remat, const Lowered& lowered) {
  const LimitSearch search(limit, lowered);
  const Choice unmoved = search.tried({remat, 0});
  Choice best = search.moved_to_fit(unmoved);
  best.plain = unmoved.plain;
  return best;
}

Choice fastest_within_limit(const ir::Graph& graph, const passes::Chain& chain, std::uint64_t limit,
                            const cost::Rates& rates, const Lowered& lowered) {
  const LimitSearch search(limit, lowered);
  std::vector<RematPlan> plans = remat_candidates(graph, chain, rates);
  // Where all that is kept leaves too, layers that are recomputed one by one need least, whatever they need alone.
  if (RematPlan full = plan_remat(chain, {.kind = RematPolicy::Kind::full});
      std::find(plans.begin(), plans.end(), full) == plans.end())
    plans.push_back(std::move(full));
  Choice best = search.tried({plans.front(), 0});
  if (best.fits) return best;
  const double plain = best.trial.seconds;
  const OptimalRemat alone = optimal_remat(graph, chain, limit, rates, [&](const RematPlan& plan) {
    return lowered({plan, 0}).peak;
  });
  if (alone.fits) best = search.tried({alone.plan, 0});
  // By rising time, as it is without copies.
  for (const RematPlan& plan : plans) {
    const Choice unmoved = search.tried({plan, 0});
    if (best.fits && unmoved.trial.seconds >= best.trial.seconds) continue;
    if (const Choice found = search.moved_to_fit(unmoved); better(found, best)) best = found;
  }
  best.plain = plain;
  return best;
}

}  // namespace trireme::planner
