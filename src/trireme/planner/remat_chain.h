#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/planner/remat_plan.h"

namespace trireme::planner {

// Rematerialisation of a chain as numbers: what each segment would hold and what it would cost to recompute.
//
// Segment k turns tensor k into tensor k + 1. Its gradients read `saved` bytes that it made (its output apart) and, if
// `reads_input`, the tensor that enters it.
struct RematSegment {
  // Some of `saved`, or all, that are cheap to make again.
  struct Cheap {
    std::uint64_t held = 0;               // bytes of `saved` that stay
    double time = 0;                      // seconds to make the others again
    std::vector<std::int32_t> kept = {};  // RematPlan::Group::kept
  };

  std::uint64_t input = 0;     // bytes of the tensor that enters
  bool reads_input = true;     // whether the gradients read it
  std::uint64_t saved = 0;     // bytes made inside that the gradients read
  std::vector<Cheap> cheap;    // by rising `held`, each of less time than those before; with all that are cheap
  std::uint64_t forward = 0;   // most bytes alive in addition to `saved` and the input while it runs forward
  std::uint64_t running = 0;   // most bytes alive in addition to the input while it runs forward and nothing is saved
  std::uint64_t backward = 0;  // most bytes of gradients alive while its gradients are computed
  double last_time = 0;        // seconds to make all of `saved` again
  double inner_time = 0;       // … and the output
  bool always_kept = false;
};

struct RematCost {
  double seconds = 0;      // of recomputation
  std::uint64_t peak = 0;  // most bytes alive
  friend bool operator==(const RematCost&, const RematCost&) = default;
};

// What a plan costs; a group that holds what is expensive keeps what one of its segment's `cheap` keeps:
//   forward   groups hold what they hold, one after the other;
//   backward  from the last group: what it forgot is made again, then the gradients of its segments run, last first,
//             and free what they read. All earlier groups still hold theirs.
RematCost cost_of(const std::vector<RematSegment>& chain, const RematPlan& plan);

// The plan of least time whose peak is at most `budget`; of those, one with the least held at the end of the forward
// phase. Exact: Pareto lists of (bytes held, seconds) over the chain, nothing rounded. Nothing when no plan fits.
std::optional<RematPlan> fastest_within(const std::vector<RematSegment>& chain, std::uint64_t budget);

// The least peak that any plan reaches.
std::uint64_t smallest_peak(const std::vector<RematSegment>& chain);

}  // namespace trireme::planner
