#include "trireme/train/device_choice.h"

#include <filesystem>

#include "trireme/compiler/graph_passes.h"
#include "trireme/core/error.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/ir/axes.h"
#include "trireme/train/compile.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/extra_ranks.h"

namespace trireme::train {
namespace {

// The widest heads that a GPU's attention takes.
constexpr std::int64_t kWidestHead = 256;

bool runs_on(const ir::Graph& graph, const ir::Node& node, device::Kind device) {
  if (node.op->traits.view || node.op->traits.collective) return true;
  const auto kernel = node.op->kernels.find(node.on_host ? device::Kind::cpu : device);
  if (kernel == node.op->kernels.end()) return false;
  ir::Types inputs;
  ir::Types outputs;
  for (const ir::ValueId v : node.inputs)
    inputs.push_back(v == ir::kNone ? TensorType::none() : graph.values[ir::index(v)].type);
  for (const ir::ValueId v : node.outputs) outputs.push_back(graph.values[ir::index(v)].type);
  return kernel->second.supports({inputs, outputs, node.attributes});
}

// The setting that keeps a run on the host's cores; empty: there is none.
std::string needs_host(const Config& config) {
  if (config.memory.weights != StoredWeights::full)
    return fmt::format("memory.weights = \"{}\"", config.memory.weights);
  if (config.memory.linear_inputs != LinearInputs::full)
    return fmt::format("memory.linear_inputs = \"{}\"", config.memory.linear_inputs);
  if (config.memory.kv_cache != KvCache::full) return fmt::format("memory.kv_cache = \"{}\"", config.memory.kv_cache);
  return extra_ranks_setting(config);
}

std::string gpus_text(std::size_t count) { return fmt::format("{} GPU{}", count, count == 1 ? "" : "s"); }

}  // namespace

Gpus gpus_here() {
  Gpus here{.built = device::cuda::built(), .found = device::cuda::gpus().size()};
  std::error_code none;
  here.installed = here.found > 0 || std::filesystem::exists("/dev/nvidia0", none);
  return here;
}

DeviceChoice choose_device(const Config& config, int local_ranks, const Gpus& gpus) {
  if (config.runtime.device == Device::cpu) return {};
  const std::string host_only = needs_host(config);
  if (config.runtime.device == Device::automatic) {
    if (!gpus.installed) return {};
    if (!gpus.built)
      return {.why = "this machine has a GPU and this build no CUDA; ./trireme builds with it where it finds nvcc"};
    if (gpus.found == 0)
      return {.why = "CUDA finds none of this machine's GPUs; nvidia-smi shows whether the driver sees them"};
    if (!host_only.empty()) return {.why = fmt::format("{} is the CPU's so far", host_only)};
    const int ranks = local_ranks > 0 ? local_ranks : mesh_of(config).ranks();
    if (static_cast<std::size_t>(ranks) > gpus.found)
      return {.why = fmt::format("{} ranks of parallel.mesh = \"{}\" are on this machine and {}; runtime.device = "
                                 "\"cuda\" lets them share",
                                 ranks, config.parallel.mesh, gpus_text(gpus.found))};
    return {.device = device::Kind::cuda};
  }
  if (!gpus.built)
    refuse(
        "runtime.device = \"cuda\": this build has no CUDA; configure with -D TRIREME_CUDA=ON (preset cuda). `trireme "
        "simulate CONFIG --cluster NAME [--plan FILE]` shows the memory and the time of a GPU's plan without one");
  if (!host_only.empty()) refuse("not available in this version: runtime.device = \"cuda\" with {}", host_only);
  if (!config.runtime.link.empty())
    refuse("runtime.link = \"{}\" slows messages between ranks on CPUs; ranks on a GPU send none", config.runtime.link);
  return {.device = device::Kind::cuda};
}

device::Kind device_of(const Config& config, int local_ranks) { return choose_device(config, local_ranks).device; }

std::string missing_kernel(const Config& config, const compiler::Graphs& graphs, const compiler::Plan& plan) {
  if (plan.device == device::Kind::cpu) return {};
  // As one rank computes it: nothing else adds ops that a device lacks.
  compiler::Plan alone;
  alone.device = plan.device;
  alone.precision = plan.precision;
  ir::Module module = graphs.module;
  compiler::graph_passes(graphs, alone).run(module);
  for (const ir::Graph& graph : module.graphs)
    for (const ir::Node& node : graph.nodes) {
      if (runs_on(graph, node, plan.device)) continue;
      const std::string what = fmt::format("a {} has no kernel for {}", device::name_of(plan.device), node.op->name);
      const bool attends = node.op->name.find("attention") != std::string::npos || node.op->name == "rotary";
      if (attends && config.model.head_dim > kWidestHead)
        return fmt::format("{} with model.head_dim = {}; the nearest is {}", what, config.model.head_dim, kWidestHead);
      const std::int64_t head = config.model.width / config.model.heads;
      if (!attends || config.model.head_dim > 0 || head <= kWidestHead) return what;
      return fmt::format("{} with heads of {} (model.width / model.heads); the nearest is {}, with model.heads = {}",
                         what, head, kWidestHead, (config.model.width + kWidestHead - 1) / kWidestHead);
    }
  return {};
}

}  // namespace trireme::train
