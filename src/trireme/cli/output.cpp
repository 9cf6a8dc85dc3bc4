#include "trireme/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace trireme::cli {

void say(std::FILE* to, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), to) != text.size()) std::clearerr(to);
}

int report(const Error& e) {
  std::fflush(stdout);
  say(stderr, "error: {}\n", e.message());
  return e.kind() == Error::Kind::request ? 2 : 1;
}

void warn(LogLevel, const std::string& text) { say(stderr, "warning: {}\n", text); }

int terminal_width(std::FILE* to) {
  const int file = fileno(to);
  if (isatty(file) == 0) return 0;
  constexpr int kUsual = 80;
  struct winsize size {};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string fitted(const std::string& line, int columns) {
  if (columns <= 0) return line;
  // What is printed has one column for each character, and a character's first byte is not 10xxxxxx.
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  int characters = 0;
  std::size_t cut = 0;  // where the last character that may stay begins
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!starts(line[i])) continue;
    if (++characters == columns) cut = i;
    if (characters > columns) return line.substr(0, cut) + "…";
  }
  return line;
}

}  // namespace trireme::cli
