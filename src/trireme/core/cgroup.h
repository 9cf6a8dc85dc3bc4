#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme {

// Bytes of memory that this process's control group, or one above it, lets it have; nothing: no limit. Reads both
// versions of control groups; a group that is not mounted here (in a container) is looked for from its root down.
std::optional<std::uint64_t> cgroup_memory_limit(const std::filesystem::path& groups = "/proc/self/cgroup",
                                                 const std::filesystem::path& mount = "/sys/fs/cgroup");

// Bytes that this process may use: those of the machine, or of its control group.
std::uint64_t usable_memory();

}  // namespace trireme
