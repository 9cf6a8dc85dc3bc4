#include "trireme/cli/training_settings.h"

#include <algorithm>
#include <array>

#include "trireme/cli/output.h"
#include "trireme/train/extra_ranks.h"

namespace trireme::cli {

void warn_of_training_settings(const Context& context, std::string_view command) {
  constexpr std::array<std::string_view, 4> kSections = {"train.", "output.", "distil.", "prune."};
  std::vector<std::string> keys = {"memory.limit",      "memory.remat",      "memory.activations", "parallel.zero",
                                   "parallel.pipeline", "parallel.compress", "parallel.bucket"};
  for (std::string& key : train::extra_ranks_keys()) keys.push_back(std::move(key));
  for (const std::string& setting : context.overrides) {
    const std::string_view key = std::string_view(setting).substr(0, setting.find('='));
    const bool section = std::any_of(kSections.begin(), kSections.end(), [&](auto s) { return key.starts_with(s); });
    const bool named = std::find(keys.begin(), keys.end(), key) != keys.end();
    if ((section && key != "train.precision") || named)
      warn(LogLevel::warning, fmt::format("{} has no effect on trireme {}: it is for training", key, command));
  }
}

}  // namespace trireme::cli
