#include "trireme/train/device_choice.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/train/compile.h"

namespace trireme::train {

device::Kind device_of(const Config& config) {
  if (config.runtime.device == Device::cpu) return device::Kind::cpu;
  const std::string host_only = needs_host(config);
  if (config.runtime.device == Device::automatic) {
    const auto ranks = static_cast<std::size_t>(mesh_of(config).ranks());
    return host_only.empty() && ranks <= device::cuda::gpus().size() ? device::Kind::cuda : device::Kind::cpu;
  }
  if (!device::cuda::built())
    refuse("runtime.device = \"cuda\": this build has no CUDA; configure with -D TRIREME_CUDA=ON (preset cuda)");
  if (!host_only.empty()) refuse("not available in this version: runtime.device = \"cuda\" with {}", host_only);
  if (!config.runtime.link.empty())
    refuse("runtime.link = \"{}\" slows messages between ranks on CPUs; ranks on a GPU send none", config.runtime.link);
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
