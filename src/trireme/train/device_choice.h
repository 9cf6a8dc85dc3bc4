#pragma once
#include "trireme/device/kernel.h"
#include "trireme/ir/graph.h"

namespace trireme::train {

// Whether every op of the module's graphs has a kernel there.
bool has_kernels(const ir::Module& module, device::Kind device);

}  // namespace trireme::train
