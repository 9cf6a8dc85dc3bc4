#pragma once
#include "trireme/simulator/simulate.h"

namespace trireme::simulator {

// A step of an asynchronous pipeline in its steady state: what one step receives another has sent, so several are
// walked one after another, from an empty pipeline to an empty one. A step is what further steps add, divided by their
// number; the timeline is that of all.
Simulation simulate_asynchronous(const compiler::Compiled& compiled, const cluster::Cluster& cluster);

}  // namespace trireme::simulator
