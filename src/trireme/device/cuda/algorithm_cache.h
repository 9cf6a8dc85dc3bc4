#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace trireme::device::cuda {

// Which algorithm was the fastest, by what it was for: kept in a file, so that it is measured once on a machine and a
// run repeats to the bit. The file is $XDG_CACHE_HOME/trireme/NAME, or in ~/.cache.
class AlgorithmCache {
 public:
  explicit AlgorithmCache(const std::string& name);

  // False where nothing can be kept: then nothing should be measured either.
  bool usable() const { return usable_; }
  std::optional<std::string> find(const std::string& key) const;
  // The first that was kept for a key stays.
  void keep(const std::string& key, const std::string& value);

 private:
  std::filesystem::path file_;
  bool usable_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> known_;
};

}  // namespace trireme::device::cuda
