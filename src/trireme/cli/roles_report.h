#pragma once
#include <string>

#include "trireme/train/trainer.h"

namespace trireme::cli {

// What the stages of a pipeline do and hold, one line each, and a picture where it is short; empty where there are
// none.
std::string stages_text(const train::Trainer& trainer);

// What each axis of the mesh shards, and a table of roles: the ranks of each, and the bytes of one of them by category.
// Empty for one rank.
std::string roles_text(const train::Compiled& compiled);

// How ranks are numbered over the mesh, and the commands that start a process for each; empty for one rank.
std::string launch_text(const train::Compiled& compiled, const std::string& command);

}  // namespace trireme::cli
