#pragma once
#include <vector>

#include "trireme/program/schedule/schedule.h"
#include "trireme/program/schedule/timing.h"

namespace trireme::program {

// ZB-H1: 1F1B's order with the backward in two. Stage i makes weight gradients i micro-batches late, which fills the
// time in which it would wait; all stages hold as many micro-batches as 1F1B's first one.
//
//   F0 F1 F2 B0 W0 F3 B1 W1 …       stage 0 of 3
//   F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 … stage 2
Schedule zero_bubble_schedule(int stages, int micro_batches);

// The best schedule found that holds at most `max_held` micro-batches (by stage, or one for all; empty: any number):
// of least makespan, then of the shortest longest stage (which counts when steps overlap; ZB-H2 has no idle time
// there), then holding the fewest. Never worse than ZB-H1 where that fits. A limit below 1 is refused.
Schedule zero_bubble_auto_schedule(int stages, int micro_batches, const std::vector<int>& max_held,
                                   const ScheduleCosts& costs = {});

}  // namespace trireme::program
