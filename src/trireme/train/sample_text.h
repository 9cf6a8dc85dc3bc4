#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trireme/train/sampling.h"
#include "trireme/train/session.h"

namespace trireme::train {

struct SampleOptions {
  std::int64_t tokens = 100;
  Sampling sampling = {};
  std::uint64_t seed = 1;
  std::optional<std::int32_t> stop = {};  // after this token, which is still given
};

// Continues `prompt` (at least one token) and gives the new tokens. `on_token` sees each as it comes; false stops.
// A session compiled to generate goes on from its caches; one compiled to train predicts the whole window anew each
// time. A sequence longer than the model's context is continued from its last part. Where ranks are processes, all of
// them call it with the same prompt and number of tokens: what the first draws, and whether it stops, counts for all.
std::vector<std::int32_t> sample_tokens(Session& session, std::span<const std::int32_t> prompt,
                                        const SampleOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace trireme::train
