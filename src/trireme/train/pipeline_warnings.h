#pragma once
#include <string>
#include <vector>

#include "trireme/compiler/compiled.h"

namespace trireme::train {

// What someone who trains by a pipeline would want to know: too few micro-batches to fill it, and a stage that the
// others wait for.
std::vector<std::string> pipeline_warnings(const compiler::Compiled& compiled);

}  // namespace trireme::train
