#include "trireme/runtime/trace.h"

#include <algorithm>
#include <map>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/trace_format.h"

namespace trireme::runtime {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Trace::Trace(std::size_t capacity) : start_(Clock::now()) { spans_.reserve(capacity); }

std::uint32_t Trace::label(const std::string& name, const std::string& category) {
  const std::lock_guard lock(mutex_);
  labels_.push_back({name, category});
  return static_cast<std::uint32_t>(labels_.size()) - 1;
}

void Trace::record(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < spans_.capacity())
    spans_.push_back(span);
  else
    ++dropped_;
}

std::string Trace::by_kind(int runs) const {
  struct Row {
    double ms = 0;
    std::size_t count = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (const Span& span : spans_) {
    const Label& label = labels_[span.label];
    Row& row = rows[fmt::format("{:<16}{}", label.category, label.name.substr(0, label.name.find(' ')))];
    const double ms = std::chrono::duration<double, std::milli>(span.end - span.begin).count();
    row.ms += ms;
    total += ms;
    ++row.count;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  std::string out = fmt::format("{:>10} {:>7} {:>6}  {:<16}{}\n", "ms/step", "share", "count", "phase", "kind");
  for (const auto& [kind, row] : sorted)
    out += fmt::format("{:>10.3f} {:>6.1f}% {:>6}  {}\n", row.ms / runs, 100 * row.ms / total,
                       row.count / static_cast<std::size_t>(runs), kind);
  return out;
}

void Trace::write(const std::filesystem::path& file, const std::string& process) const {
  constexpr std::size_t kBlock = 1 << 20;
  AtomicFile out(file.string());
  std::string text;
  const auto micros = [&](Clock::time_point t) {
    return std::chrono::duration<double, std::micro>(t - start_).count();
  };
  text += kTraceBeginning;
  text += fmt::format(R"({{"name":"process_name","ph":"M","pid":0,"args":{{"name":"{}"}}}})", escaped(process));
  for (const Span& span : spans_) {
    const Label& label = labels_[span.label];
    text += fmt::format(
        ",\n"
        R"({{"name":"{}","cat":"{}","ph":"X","pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
        escaped(label.name), escaped(label.category), span.track, micros(span.begin),
        micros(span.end) - micros(span.begin));
    if (text.size() < kBlock) continue;
    out.write(text);
    text.clear();
  }
  out.write(text + "\n]}\n");
  out.commit();
}

}  // namespace trireme::runtime
