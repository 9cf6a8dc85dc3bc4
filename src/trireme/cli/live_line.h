#pragma once
#include <string>
#include <vector>

namespace trireme::cli {

// One line on stderr that changes in place on a terminal, and is a plain line each time otherwise.
class LiveLine {
 public:
  LiveLine();
  bool terminal() const { return terminal_; }
  // Of the terminal; 0 without one.
  int columns() const;
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

constexpr int kBarWidth = 24;
// "━━━━━╸────": `share` of `width` columns.
std::string progress_bar(double share, int width = kBarWidth);

// One of the facts of a progress line; where not all fit, the least important leave it.
struct Fact {
  std::string text;
  int importance = 0;
};
// "step 12/300 ━━━╸──── loss 2.010 · 20.4k tok/s · 23 s left" in at most `columns`; 0: as long as it is. The bar gives
// way to the facts, and `head` with the most important of them to nothing.
std::string progress_line(const std::string& head, double share, std::vector<Fact> facts, int columns);

}  // namespace trireme::cli
