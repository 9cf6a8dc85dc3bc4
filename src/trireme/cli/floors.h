#pragma once
#include <string>

#include "trireme/program/program.h"

namespace trireme::cli {

// By phase and kind of instruction, the least time a step can take: for each, its operations at `flops` a second or its
// bytes at `bytes` a second, whichever is longer; launches on the host apart. As a table, the longest first.
std::string floors(const program::Program& program, double flops, double bytes);

}  // namespace trireme::cli
