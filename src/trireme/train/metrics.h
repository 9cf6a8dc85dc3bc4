#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme::train {

// One logged step, as in metrics.jsonl.
struct Metrics {
  std::int64_t step = 0;  // updates done
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;  // so far
  double tokens_per_s = 0;
  double step_ms = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t sent_bytes = 0;
  double wall_s = 0;
  double mfu = 0;
  double exposed_comm_ms = 0;
  double data_wait_ms = 0;
  std::optional<double> eval_loss;
};

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
