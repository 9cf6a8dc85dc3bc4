#include "trireme/core/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "trireme/core/error.h"

namespace trireme {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KB", 1e3},
                                              {"KiB", 0x1p10},
                                              {"MB", 1e6},
                                              {"MiB", 0x1p20},
                                              {"GB", 1e9},
                                              {"GiB", 0x1p30},
                                              {"TB", 1e12},
                                              {"TiB", 0x1p40}}};
constexpr std::array<Unit, 10> kTimeUnits = {{{"us", 1e-6},
                                              {"ms", 1e-3},
                                              {"s", 1},
                                              {"sec", 1},
                                              {"", 1},
                                              {"m", 60},
                                              {"min", 60},
                                              {"h", 3600},
                                              {"hour", 3600},
                                              {"d", 86400}}};

// Takes "12.5unit" off the front of `text`; the value in base units, or nothing.
std::optional<double> take_quantity(std::string_view& text, std::span<const Unit> units) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text = trim(text.substr(static_cast<std::size_t>(rest - text.data())));
  std::size_t letters = 0;
  while (letters < text.size() && std::isalpha(static_cast<unsigned char>(text[letters])) != 0) ++letters;
  const std::string_view unit = text.substr(0, letters);
  for (const Unit& u : units)
    if (u.name == unit) {
      text = trim(text.substr(letters));
      return number * u.factor;
    }
  return std::nullopt;
}

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t n = b.size();
  std::vector<int> before(n + 1), previous(n + 1), current(n + 1);
  for (std::size_t j = 0; j <= n; ++j) previous[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= n; ++j) {
      const int substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[n];
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  text = trim(text);
  const auto value = take_quantity(text, kByteUnits);
  if (!value || !text.empty() || *value >= 0x1p63) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::optional<double> parse_duration(std::string_view text) {
  text = trim(text);
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    const auto value = take_quantity(text, kTimeUnits);
    if (!value) return std::nullopt;
    total += *value;
  }
  return total;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<const char*, 5> names = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, names[unit]);
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string format_duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

std::string format_rate(double per_second) {
  if (per_second < 1e3) return fmt::format("{:.0f}", per_second);
  if (per_second < 1e6) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.1f}M", per_second / 1e6);
}

std::optional<std::string> nearest(std::string_view text, std::span<const std::string> candidates) {
  int best = std::numeric_limits<int>::max();
  const std::string* found = nullptr;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(text, candidate);
    if (distance < best) {
      best = distance;
      found = &candidate;
    }
  }
  // One slip in a short word, a few in a long one.
  const int allowed = text.size() < 5 ? 1 : std::max<int>(2, static_cast<int>(text.size()) / 3);
  if (found == nullptr || best > allowed || best >= static_cast<int>(std::max(text.size(), found->size())))
    return std::nullopt;
  return *found;
}

std::string nearest_text(std::string_view text, const std::vector<std::string>& candidates) {
  const auto near = nearest(text, candidates);
  return near ? fmt::format("; the nearest is '{}'", *near) : "";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string sparkline(std::span<const double> values, int width) {
  constexpr std::array<const char*, 8> bars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width <= 0) return {};
  const auto columns = std::min<std::size_t>(values.size(), static_cast<std::size_t>(width));
  std::vector<double> means(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t begin = c * values.size() / columns;
    const std::size_t end = std::max(begin + 1, (c + 1) * values.size() / columns);
    double sum = 0;
    double count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      count += 1;
    }
    means[c] = sum / count;  // not a number where there is none
  }
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double mean : means) {
    low = std::fmin(low, mean);
    high = std::fmax(high, mean);
  }
  std::string line;
  for (const double mean : means) {
    if (std::isnan(mean)) {
      line += " ";
      continue;
    }
    const double share = high > low ? (mean - low) / (high - low) : 0;
    line += bars[static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 7.0))];
  }
  return line;
}

}  // namespace trireme
