#include "trireme/train/metrics.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/json.h"

namespace trireme::train {
namespace {

// The lines of `file` up to a step; unreadable lines (a crash in the middle of one) end it.
std::string kept_lines(const std::filesystem::path& file, std::int64_t through) {
  std::string kept;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json object = parse_json(line);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) break;
    if (object["step"].get<std::int64_t>() > through) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

std::string to_json(const Metrics& m) {
  nlohmann::ordered_json o;
  o["step"] = m.step;
  // JSON has no NaN; null says that there was no number.
  const auto number = [](double v) {
    return std::isfinite(v) ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr);
  };
  o["loss"] = number(m.loss);
  o["grad_norm"] = number(m.grad_norm);
  o["lr"] = m.lr;
  o["tokens"] = m.tokens;
  o["tokens_per_s"] = std::round(m.tokens_per_s * 10) / 10;
  o["step_ms"] = std::round(m.step_ms * 1000) / 1000;
  o["peak_bytes"] = m.peak_bytes;
  o["sent_bytes"] = m.sent_bytes;
  o["wall_s"] = std::round(m.wall_s * 1000) / 1000;
  o["mfu"] = std::round(m.mfu * 10000) / 10000;
  o["exposed_comm_ms"] = m.exposed_comm_ms;
  o["data_wait_ms"] = std::round(m.data_wait_ms * 1000) / 1000;
  if (m.loss_scale) {
    o["skipped"] = m.skipped;
    o["loss_scale"] = *m.loss_scale;
  }
  if (m.eval_loss) o["eval_loss"] = number(*m.eval_loss);
  if (m.eval_loss) {
    o["eval_samples"] = m.eval_samples;
    o["held_out_samples"] = m.held_out_samples;
  }
  if (m.eval_accuracy) o["eval_accuracy"] = *m.eval_accuracy;
  return o.dump();
}

MetricsFile::MetricsFile(const std::filesystem::path& file, std::int64_t keep_through) : path_(file.string()) {
  const std::string kept = keep_through > 0 ? kept_lines(file, keep_through) : "";
  write_file_atomically(path_, kept);
  fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail("cannot open {}: {}", path_, std::strerror(errno));
  size_ = static_cast<std::int64_t>(kept.size());
}

MetricsFile::~MetricsFile() { close(fd_); }

void MetricsFile::append(const Metrics& metrics) {
  const std::string line = to_json(metrics) + "\n";
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) {
    size_ += written;
    return;
  }
  const std::string reason = written < 0 ? std::strerror(errno) : "No space left on device";
  if (ftruncate(fd_, size_) != 0) fail("cannot write {}: {}, and half a line could not be taken back", path_, reason);
  fail("cannot write {}: {}", path_, reason);
}

}  // namespace trireme::train
