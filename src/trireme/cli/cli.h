#pragma once
#include "trireme/train/registry.h"

namespace trireme::cli {

// The program: parses the arguments, runs a command, prints errors as one line, and gives the exit code (0 done, 1 the
// run failed, 2 the request was wrong, 130 / 143 stopped by a signal).
int cli_main(int argc, char** argv, const train::Registry& registry);

}  // namespace trireme::cli
