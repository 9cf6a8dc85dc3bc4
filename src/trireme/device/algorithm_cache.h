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
//
// What was recorded with a run (use_recorded) comes before the file.
class AlgorithmCache {
 public:
  explicit AlgorithmCache(const std::string& name);

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
// All choices that this process has asked for or made, by cache and key: what a run records.
std::vector<ChosenAlgorithm> algorithms_used();
// From here on these are found in their caches, before what their files have. The first for a key stays.
void use_recorded(std::span<const ChosenAlgorithm> recorded);
// As text, a line for each with a checksum; read back, lines that are short or corrupt are left out, and all of another
// version.
std::string algorithms_text(std::span<const ChosenAlgorithm> chosen);
std::vector<ChosenAlgorithm> parse_algorithms(std::string_view text);

// What this process measured because no cache had it: how many algorithms were chosen, and the seconds that took.
struct AlgorithmsMeasured {
  int choices = 0;
  double seconds = 0;
};
void note_measured(double seconds);
AlgorithmsMeasured algorithms_measured();

}  // namespace trireme::device
