#include "trireme/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "trireme/cli/report.h"

namespace trireme::cli {

namespace {

int lost_because = 0;  // errno of the first text that standard output did not take

}  // namespace

void say(std::FILE* to, const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), to) == text.size()) return;
  if (to == stdout && lost_because == 0) lost_because = errno == 0 ? EIO : errno;
  std::clearerr(to);
}

bool flush_output() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (lost_because == 0 && (!flushed || std::ferror(stdout) != 0)) lost_because = errno == 0 ? EIO : errno;
  return flushed;
}

int settle_output(int code) {
  flush_output();
  if (code != 0 || lost_because == 0) return code;
  return report(Error(Error::Kind::failure, fmt::format("standard output could not be written: {}; what was printed is "
                                                        "not complete",
                                                        std::strerror(lost_because))));
}

int report(const Error& e) {
  flush_output();
  say(stderr, "error: {}\n", printable(e.message()));
  return e.kind() == Error::Kind::request ? 2 : 1;
}

void warn(LogLevel, const std::string& text) { say(stderr, "warning: {}\n", printable(text)); }

bool is_telling(double perplexity) { return perplexity < 1e6; }

std::string perplexity_text(double loss, int decimals) {
  const double perplexity = std::exp(loss);
  return is_telling(perplexity) ? fmt::format("{:.{}f}", perplexity, decimals)
                                : fmt::format("over 10^{}", static_cast<std::int64_t>(loss / std::numbers::ln10));
}

int terminal_width(std::FILE* to) {
  const int file = fileno(to);
  if (isatty(file) == 0) return 0;
  constexpr int kUsual = 80;
  struct winsize size {};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

// What is printed has one column for each character, and a character's first byte is not 10xxxxxx.
static bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string fitted(const std::string& line, int columns) {
  if (columns <= 0) return line;
  int characters = 0;
  std::size_t cut = 0;  // where the last character that may stay begins
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!begins_character(line[i])) continue;
    if (++characters == columns) cut = i;
    if (characters > columns) return line.substr(0, cut) + "…";
  }
  return line;
}

}  // namespace trireme::cli
