#include "trireme/train/offload_warning.h"

#include <fmt/format.h>

namespace trireme::train {

std::string offload_warning(const Config& config, const Compiled& compiled) {
  if (config.memory.offload.none() || config.memory.limit.count > 0 || compiled.steps.empty()) return {};
  for (int tier = 1; tier < program::kTiers; ++tier)
    if (compiled.tier_bytes(tier) > 0) return {};
  const bool chooses = config.memory.offload.activations && config.memory.offload_policy != OffloadPolicy::all;
  return fmt::format(
      "memory.offload = \"{}\" offloads nothing: no tensor of this run is large enough to be worth its copies{}",
      config.memory.offload,
      chooses ? ", or takes long enough to compute; memory.offload_policy = \"all\" offloads more" : "");
}

}  // namespace trireme::train
