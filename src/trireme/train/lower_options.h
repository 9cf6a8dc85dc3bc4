#pragma once
#include "trireme/program/lower.h"
#include "trireme/train/compile.h"

namespace trireme::train {

// How programs are lowered for a configuration, but for their name, graphs and micro-batches: what runs beside the
// computation, how far ahead of it, and the scratch that the transport needs for it.
program::LowerOptions lower_options(const Config& config, const ir::Module& module, const ir::Mesh& mesh,
                                    const CompileOptions& options, device::Kind device);

}  // namespace trireme::train
