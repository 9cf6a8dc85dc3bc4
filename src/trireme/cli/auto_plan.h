#pragma once
#include "trireme/cli/commands.h"
#include "trireme/train/config.h"

namespace trireme::cli {

// parallel.plan = "auto": the configuration under the best plan for this machine, which is measured quickly where that
// was not done before. Keys that were given stay as they are. `launched` processes are ranks, and one of them plans for
// all; 1: ranks are threads, as many as is best. Says on stdout what was chosen. A dry run for which there is no plan
// says why on stderr and goes on with the keys as they are.
train::Config planned_here(const Context& context, train::Config config, int launched, bool dry_run = false);

}  // namespace trireme::cli
