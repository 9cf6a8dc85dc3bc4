#include "trireme/device/cuda/algorithm_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace trireme::device::cuda {
namespace {

std::filesystem::path folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return std::filesystem::path(cache) / "trireme";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return std::filesystem::path(home) / ".cache" / "trireme";
  return {};
}

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& name) {
  if (folder().empty()) return;
  file_ = folder() / name;
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  const int file = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  ::close(file);
  usable_ = true;
  std::ifstream in(file_);
  for (std::string key, value; in >> key >> value;) known_.try_emplace(key, value);
}

std::optional<std::string> AlgorithmCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void AlgorithmCache::keep(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (!known_.try_emplace(key, value).second) return;
  const std::string line = key + " " + value + "\n";
  const int file = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  // One write: lines of two processes do not mix. A file that cannot be written to is as good as none.
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
  ::close(file);
}

}  // namespace trireme::device::cuda
