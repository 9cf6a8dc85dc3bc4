#include "trireme/core/cgroup.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "trireme/core/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Of one group; "max", and what no machine has, is no limit.
std::optional<std::uint64_t> limit_in(const fs::path& file) {
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  if (!(in >> bytes) || bytes >= kNoLimit) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<std::uint64_t> cgroup_memory_limit(const fs::path& groups, const fs::path& mount) {
  std::optional<std::uint64_t> least;
  std::ifstream in(groups);
  for (std::string line; std::getline(in, line);) {  // "4:memory:/jobs/7", or "0::/jobs/7" in version 2
    const std::vector<std::string> parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::vector<std::string> controllers = split(parts[1], ',');
    const bool second = parts[0] == "0" && parts[1].empty();
    if (!second && std::find(controllers.begin(), controllers.end(), "memory") == controllers.end()) continue;
    const fs::path root = second ? mount : mount / "memory";
    const char* file = second ? "memory.max" : "memory.limit_in_bytes";
    for (fs::path group = fs::path(line.substr(std::min(line.find('/'), line.size()))).relative_path();;
         group = group.parent_path()) {
      if (const auto limit = limit_in(root / group / file)) least = std::min(least.value_or(*limit), *limit);
      if (group.empty()) break;
    }
  }
  return least;
}

std::uint64_t usable_memory() {
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(bytes, cgroup_memory_limit().value_or(bytes));
}

}  // namespace trireme
