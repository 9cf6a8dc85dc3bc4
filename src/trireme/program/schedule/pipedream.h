#pragma once
#include "trireme/program/schedule/schedule.h"

namespace trireme::program {

// Weight stashing: 1F1B's order without an end, and an update after every backward. Stage i is p − 1 − i micro-batches
// ahead of its backwards and keeps p − i versions of the weights. A step of m < p micro-batches allows to be m − 1
// ahead: then there is idle time, and there are at most m versions.
Schedule pipedream_schedule(int stages, int micro_batches);

// Double-buffered weights: the same order, and one update per batch, whose result is read from the next step but one
// on. Refuses fewer micro-batches than stages.
Schedule pipedream_2bw_schedule(int stages, int micro_batches);

}  // namespace trireme::program
