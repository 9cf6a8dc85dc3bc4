#pragma once
#include <string>

#include "trireme/cli/commands.h"
#include "trireme/train/compile.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::cli {

// Why the values and states whose names match `pattern` (* stands for any characters) are sharded as they are: for each
// axis the way back to the annotation that it follows from.
std::string explained_sharding(const train::Config& config, const train::Registry& registry,
                               const std::string& pattern);

// Every collective of a role's graphs: what it does, over which axis, bytes that a rank sends, and what it is for.
std::string collectives_table(const train::Role& role);

}  // namespace trireme::cli
