#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::runtime {

// What ran when, written as a Chrome trace (chrome://tracing, ui.perfetto.dev). Spans refer to names kept elsewhere
// until the file is written, so that recording is cheap; recording beyond the reserved capacity is dropped and counted.
class Trace {
 public:
  explicit Trace(std::size_t capacity);

  using Clock = std::chrono::steady_clock;
  struct Span {
    std::uint32_t label;
    std::int32_t track;  // stream
    Clock::time_point begin;
    Clock::time_point end;
  };

  // A number for a name and its category ("forward", "update", …), to be used in `record`.
  std::uint32_t label(const std::string& name, const std::string& category);
  void record(const Span& span);
  std::size_t spans() const { return spans_.size(); }
  const std::vector<Span>& all() const { return spans_; }
  const std::string& name(const Span& span) const { return labels_[span.label].name; }
  const std::string& category(const Span& span) const { return labels_[span.label].category; }
  std::size_t dropped() const { return dropped_; }

  // Milliseconds per run by category and kind (the first word of a name), the slowest first, as a table.
  std::string by_kind(int runs) const;

  // JSON, written aside and renamed. `process` names the track group ("rank 0").
  void write(const std::filesystem::path& file, const std::string& process) const;

 private:
  struct Label {
    std::string name;
    std::string category;
  };
  Clock::time_point start_;
  std::mutex mutex_;
  std::vector<Label> labels_;
  std::vector<Span> spans_;
  std::size_t dropped_ = 0;
};

}  // namespace trireme::runtime
