#pragma once
#include <string>

#include "trireme/cli/commands.h"

namespace trireme::cli {

// Simulates every row of a table of published runs (bench/published_runs.csv) and prints what was predicted and what
// was published, in the row's own unit. Rows that this version cannot compile are listed with the reason.
int simulate_published(const Context& context, const std::string& file, bool json, bool planned = false);

}  // namespace trireme::cli
