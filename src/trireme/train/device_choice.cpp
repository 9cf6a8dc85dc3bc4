#include "trireme/train/device_choice.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/train/compile.h"

namespace trireme::train {

device::Kind device_of(const Config& config) {
  if (config.runtime.device == "cpu") return device::Kind::cpu;
  const bool alone = mesh_of(config).ranks() == 1 && config.parallel.server == "none";
  if (config.runtime.device == "auto")
    return alone && !device::cuda::gpus().empty() ? device::Kind::cuda : device::Kind::cpu;
  if (!device::cuda::built())
    refuse("runtime.device = \"cuda\": this build has no CUDA; configure with -D TRIREME_CUDA=ON (preset cuda)");
  if (!alone) refuse("runtime.device = \"cuda\" is, in this version, for one rank without parallel.server");
  return device::Kind::cuda;
}

bool has_kernels(const ir::Module& module, device::Kind device) {
  return std::all_of(module.graphs.begin(), module.graphs.end(), [&](const auto& graph) {
    return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
      return node.op->traits.view || node.op->traits.collective || node.op->kernels.contains(device);
    });
  });
}

}  // namespace trireme::train
