#include "trireme/device/algorithm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"

namespace trireme::device {
namespace {

constexpr int kVersion = 2;  // of the file and of how algorithms are chosen
constexpr const char* kRecorded = "recorded";

std::filesystem::path folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0)
    return std::filesystem::path(cache) / "trireme";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return std::filesystem::path(home) / ".cache" / "trireme";
  return {};
}

std::string header_of(const std::string& name) { return fmt::format("trireme-algorithms {} {}\n", kVersion, name); }

std::string line_of(const std::string& name, std::string_view key, std::string_view value) {
  const std::string text = fmt::format("{} {}", key, value);
  const std::string summed = name + " " + text;
  return fmt::format("{} {:016x}\n", text, XXH3_64bits(summed.data(), summed.size()));
}

// All of it by one write, so that lines of two processes do not mix.
void append(const std::filesystem::path& file, const std::string& text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_APPEND);
  if (descriptor < 0) return;
  // A short line would not agree with its sum, and is dropped by who reads it.
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
  ::close(descriptor);
}

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& name) : name_(name) {
  if (folder().empty()) return;
  file_ = folder() / name;
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  if (!read()) replace();
}

// Whether every byte of the file is as it was written.
bool AlgorithmCache::read() {
  std::ifstream in(file_, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string header = header_of(name_);
  if (!all.starts_with(header)) return false;
  bool intact = true;
  for (std::size_t at = header.size(); at < all.size();) {
    const std::size_t end = all.find('\n', at);
    const std::string line = all.substr(at, end == std::string::npos ? end : end + 1 - at);
    at += line.size();
    std::istringstream words(line);
    std::string key;
    std::string value;
    if (words >> key >> value && line == line_of(name_, key, value))
      known_.try_emplace(key, value);
    else
      intact = false;
  }
  return intact;
}

void AlgorithmCache::replace() const {
  std::string text = header_of(name_);
  for (const auto& [key, value] : known_) text += line_of(name_, key, value);
  try {
    write_file_atomically(file_.string(), text);
  } catch (const Error&) {
    // Without a cache algorithms are measured again.
  }
}

std::optional<std::string> AlgorithmCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void AlgorithmCache::keep(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (known_.try_emplace(key, value).second && !file_.empty()) append(file_, line_of(name_, key, value));
}

std::string algorithms_text(std::span<const ChosenAlgorithm> chosen) {
  if (chosen.empty()) return {};
  std::string text = header_of(kRecorded);
  for (const ChosenAlgorithm& c : chosen) text += c.cache + " " + line_of(c.cache, c.key, c.value);
  return text;
}

std::vector<ChosenAlgorithm> parse_algorithms(std::string_view text) {
  std::vector<ChosenAlgorithm> all;
  const std::string header = header_of(kRecorded);
  if (!text.starts_with(header)) return all;
  std::istringstream lines{std::string(text.substr(header.size()))};
  for (std::string line; std::getline(lines, line);) {
    ChosenAlgorithm c;
    std::istringstream words(line);
    if (words >> c.cache >> c.key >> c.value && line + "\n" == c.cache + " " + line_of(c.cache, c.key, c.value))
      all.push_back(std::move(c));
  }
  return all;
}

void Algorithms::use_recorded(std::span<const ChosenAlgorithm> recorded) {
  const std::lock_guard lock(mutex_);
  for (const ChosenAlgorithm& c : recorded) recorded_.try_emplace({c.cache, c.key}, c.value);
}

std::optional<std::string> Algorithms::find(const AlgorithmCache& cache, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto recorded = recorded_.find({cache.name(), key});
  std::optional<std::string> found = recorded == recorded_.end() ? cache.find(key) : recorded->second;
  if (found) used_[{cache.name(), key}] = *found;
  return found;
}

void Algorithms::keep(AlgorithmCache& cache, const std::string& key, const std::string& value) {
  cache.keep(key, value);
  const std::lock_guard lock(mutex_);
  used_[{cache.name(), key}] = value;
}

std::vector<ChosenAlgorithm> Algorithms::used() const {
  const std::lock_guard lock(mutex_);
  std::vector<ChosenAlgorithm> all;
  for (const auto& [at, value] : used_) all.push_back({at.first, at.second, value});
  return all;
}

void Algorithms::note_measured(double seconds) {
  const std::lock_guard lock(mutex_);
  ++measured_.choices;
  measured_.seconds += seconds;
}

Algorithms::Measured Algorithms::measured() const {
  const std::lock_guard lock(mutex_);
  return measured_;
}

}  // namespace trireme::device
