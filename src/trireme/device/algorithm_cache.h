#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::device {

// Which of a library's algorithms was the fastest, by what it computes: kept in a file, so that it is measured once on
// a machine. Only algorithms that give the same bits compete (cuda/trial.h), so a missing or discarded file costs the
// time to measure again and changes no result.
//
// The file is $XDG_CACHE_HOME/trireme/NAME, or in ~/.cache: a line with its version, then a line for each entry with a
// checksum. A file of another version is discarded, and so are lines that are short or corrupt; it is then replaced by
// a new file in one step. Entries are appended by one write each, so processes may share the file.
class AlgorithmCache {
 public:
  explicit AlgorithmCache(const std::string& name);

  const std::string& name() const { return name_; }
  std::optional<std::string> find(const std::string& key) const;
  // The first that was kept for a key stays. Neither text may have spaces. A file that cannot be written is as good as
  // none: the entry is then known to this process alone.
  void keep(const std::string& key, const std::string& value);

 private:
  bool read();
  void replace() const;

  std::string name_;
  std::filesystem::path file_;  // empty: there is no folder for it
  mutable std::mutex mutex_;
  std::map<std::string, std::string> known_;
};

// One choice, and the cache that has it.
struct ChosenAlgorithm {
  std::string cache;  // its name: the library, its version and the GPU
  std::string key;
  std::string value;
  friend bool operator==(const ChosenAlgorithm&, const ChosenAlgorithm&) = default;
};
// As text, a line for each with a checksum; read back, lines that are short or corrupt are left out, and all of another
// version.
std::string algorithms_text(std::span<const ChosenAlgorithm> chosen);
std::vector<ChosenAlgorithm> parse_algorithms(std::string_view text);

// The choices that one run computes by. Those that were recorded with it come before what the caches' files have, so
// that a run which goes on elsewhere, or when the files are gone, computes as it was begun. The threads of a run's
// ranks share it; two runs of one process do not.
class Algorithms {
 public:
  // From here on these are found first. The first for a key stays.
  void use_recorded(std::span<const ChosenAlgorithm> recorded);

  std::optional<std::string> find(const AlgorithmCache& cache, const std::string& key);
  void keep(AlgorithmCache& cache, const std::string& key, const std::string& value);
  // All that was found or kept, by cache and key: what the run records.
  std::vector<ChosenAlgorithm> used() const;

  // What was measured because neither the record nor a cache had it: how many algorithms were chosen, and the seconds
  // that took.
  struct Measured {
    int choices = 0;
    double seconds = 0;
  };
  void note_measured(double seconds);
  Measured measured() const;

 private:
  using Choices = std::map<std::pair<std::string, std::string>, std::string>;  // by cache and key
  mutable std::mutex mutex_;
  Choices recorded_;
  Choices used_;
  Measured measured_;
};

}  // namespace trireme::device
