#include "trireme/cli/training_settings.h"

#include <algorithm>
#include <array>

#include "trireme/cli/output.h"

namespace trireme::cli {

void warn_of_training_settings(const Context& context, std::string_view command) {
  constexpr std::array<std::string_view, 4> kSections = {"train.", "output.", "distil.", "prune."};
  constexpr std::array<std::string_view, 9> kKeys = {"memory.limit",    "memory.remat",      "memory.activations",
                                                     "parallel.zero",   "parallel.pipeline", "parallel.compress",
                                                     "parallel.bucket", "parallel.server",   "parallel.servers"};
  for (const std::string& setting : context.overrides) {
    const std::string_view key = std::string_view(setting).substr(0, setting.find('='));
    const bool section = std::any_of(kSections.begin(), kSections.end(), [&](auto s) { return key.starts_with(s); });
    const bool named = std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
    if ((section && key != "train.precision") || named)
      warn(LogLevel::warning, fmt::format("{} has no effect on trireme {}: it is for training", key, command));
  }
}

}  // namespace trireme::cli
