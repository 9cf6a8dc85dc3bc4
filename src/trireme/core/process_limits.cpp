#include "trireme/core/process_limits.h"

#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "trireme/core/text.h"

namespace trireme {
namespace {

std::optional<std::uint64_t> limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Of /proc/self/status, which counts in KiB.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) << 10;
  return 0;
}

std::uint64_t stack_bytes() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

}  // namespace

ProcessLimit process_limit(int threads) {
  ProcessLimit least;
  const std::uint64_t stacks = static_cast<std::uint64_t>(threads) * stack_bytes();
  const auto consider = [&](decltype(RLIMIT_AS) resource, const char* flag, const char* all, const char* used) {
    const auto limit = limit_of(resource);
    if (!limit) return;
    const std::uint64_t reserved = status_bytes(all) - std::min(status_bytes(all), status_bytes(used));
    const std::uint64_t bytes = *limit - std::min(*limit, reserved + stacks);
    if (bytes < least.bytes) least = {bytes, fmt::format("ulimit {} = {}", flag, format_bytes(*limit))};
  };
  consider(RLIMIT_AS, "-v", "VmSize", "VmRSS");
  consider(RLIMIT_DATA, "-d", "VmData", "RssAnon");
  return least;
}

void allocate_within_limits() {
  if (limit_of(RLIMIT_AS)) mallopt(M_ARENA_MAX, 1);
}

}  // namespace trireme
