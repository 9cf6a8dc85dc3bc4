#pragma once
#include <string>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/train/config.h"

namespace trireme::train {

// Where a run computes.
struct DeviceChoice {
  device::Kind device = device::Kind::cpu;
  std::string why = {};  // with runtime.device = "auto": why not on the GPUs that are there
};

// What a choice depends on: whether the build has CUDA, how many GPUs that finds, whether the system has one at all.
struct Gpus {
  bool built = false;
  std::size_t found = 0;
  bool installed = false;
};
Gpus gpus_here();

// By runtime.device. auto: on GPUs where there is one for every rank of this machine, `local_ranks` (0: all ranks), and
// nothing keeps the run on the host. Refuses a device that this build does not know.
DeviceChoice choose_device(const Config& config, int local_ranks, const Gpus& gpus = gpus_here());

// The first op of the model or of its gradients that has no kernel there for its types, with what to change; "": all
// have one.
std::string missing_kernel(const Config& config, const compiler::Graphs& graphs, const compiler::Plan& plan);

}  // namespace trireme::train
