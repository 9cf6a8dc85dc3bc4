#pragma once
#include <string>

#include "trireme/train/compile.h"

namespace trireme::train {

// What someone who asked for offload would want to know: that nothing is offloaded. "" otherwise, and under a limit
// that all fits into.
std::string offload_warning(const Config& config, const Compiled& compiled);

}  // namespace trireme::train
