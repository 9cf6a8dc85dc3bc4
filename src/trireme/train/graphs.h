#pragma once
#include "trireme/compiler/graphs.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// The graphs of a configuration's model, once for every program that needs a form of its own, and how it is trained.
compiler::Graphs build_graphs(const Config& config, const Registry& registry, const CompileOptions& options);

}  // namespace trireme::train
