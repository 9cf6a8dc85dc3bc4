#pragma once
#include <cstdint>
#include <functional>

#include "trireme/planner/remat_policy.h"

namespace trireme::planner {

// Two ways to make a step smaller, together: what is recomputed, and how many activations wait in another tier
// (passes/offload.h, Options::activations).
struct Saving {
  RematPlan remat;
  std::size_t moved = 0;
  friend bool operator==(const Saving&, const Saving&) = default;
};

// A step with a saving, as lowered.
struct Trial {
  std::uint64_t peak = 0;   // bytes
  double seconds = 0;       // predicted
  std::size_t movable = 0;  // activations that did leave: no more than there are
};

struct Choice {
  Saving saving;
  Trial trial;
  bool fits = false;  // false: nothing does, and this needs the least of all that was tried
  double plain = 0;   // seconds of the step that saves nothing
};

// The number of activations to move with which the step fits and is predicted to take least time. All of them where not
// even that is enough.
Choice moved_to_fit(std::uint64_t limit, const RematPlan& remat, const std::function<Trial(const Saving&)>& lowered);

// The saving of least predicted time whose step fits. Looks at plans of rematerialisation from none to the smallest
// (those of least recomputation for rising budgets, and the simple policies), each with as few activations moved as
// make it fit; so it is never slower than the better of optimal_remat and least_moved alone, and fits wherever one
// does.
Choice fastest_within_limit(const ir::Graph& graph, const passes::Chain& chain, std::uint64_t limit,
                            const cost::Rates& rates, const std::function<Trial(const Saving&)>& lowered);

}  // namespace trireme::planner
