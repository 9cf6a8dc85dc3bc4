#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/train/session.h"

namespace trireme::train {

struct SampleOptions {
  std::int64_t tokens = 100;
  double temperature = 0.8;  // 0: the likeliest token each time
  std::uint64_t seed = 1;
};

// Continues `prompt` (at least one token) and gives the new tokens. `on_token` sees each as it comes; false stops.
std::vector<std::int32_t> sample_tokens(Session& session, std::span<const std::int32_t> prompt,
                                        const SampleOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace trireme::train
