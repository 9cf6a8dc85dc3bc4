#pragma once
#include <string>

namespace trireme::cli {

// One line on stderr that changes in place on a terminal, and is a plain line each time otherwise.
class LiveLine {
 public:
  LiveLine();
  bool terminal() const { return terminal_; }
  // Seconds between two showings: often on a terminal, rarely in a log.
  double pause() const { return terminal_ ? 0.1 : 5.0; }
  void show(const std::string& line);
  // So that other text can follow: the line stays, or is taken away.
  void keep();
  void clear();

 private:
  bool terminal_;
  bool open_ = false;
};

// "━━━━━╸────": `share` of `width` columns.
std::string progress_bar(double share, int width = 24);

}  // namespace trireme::cli
