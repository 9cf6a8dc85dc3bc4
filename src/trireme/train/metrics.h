#pragma once
#include <trireme/metrics.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme::train {

using trireme::Metrics;

std::string to_json(const Metrics& metrics);

// Appends lines to a file, each whole or not at all: a line that cannot be written (a full disk) is taken back and
// reported.
class MetricsFile {
 public:
  // Keeps the lines of steps up to `keep_through` (resuming), or starts anew when it is 0.
  MetricsFile(const std::filesystem::path& file, std::int64_t keep_through);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void append(const Metrics& metrics);

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace trireme::train
