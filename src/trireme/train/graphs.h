#pragma once
#include "trireme/compiler/graphs.h"
#include "trireme/program/schedule/schedule.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// The graphs of a configuration's model, once for every program that needs a form of its own, and how it is trained.
compiler::Graphs build_graphs(const Config& config, const Registry& registry, const CompileOptions& options);

// The schedule of parallel.pipeline = "file:PATH"; what is wrong with it is refused by that key.
program::Schedule read_given_schedule(const std::string& path);

}  // namespace trireme::train
