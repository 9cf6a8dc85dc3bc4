#pragma once
#include <cstdint>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// For each of some models and numbers of ranks: the planner's choice on this machine, calibrated in the same run, among
// `of` plans of its space that are all measured.
int bench_chosen(const Context& context, int cases, int of, int steps, std::uint64_t seed, bool json);

}  // namespace trireme::cli
