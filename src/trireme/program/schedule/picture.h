#pragma once
#include <string>
#include <string_view>

#include "trireme/program/schedule/timing.h"

namespace trireme::program {

struct PictureOptions {
  int width = 100;        // columns; a longer picture goes on below
  bool colour = false;    // with escape sequences for a terminal
  int micro_batches = 0;  // numbers start again after so many, as the steps of an unrolled schedule do; 0: never
};

// Stages × time, one cell per unit of time. A longer action fills its cells, "··" is idle time, and an action that
// takes none (the update) is not drawn.
//
//   time     0              5
//   stage 0  F0 F1 ·· ·· B0━━━ ·· B1━━━
//   stage 1  ·· F0 B0━━━ F1 B1━━━ ·· ··
std::string picture(const Schedule& schedule, const ScheduleTiming& timing, const PictureOptions& options = {});

struct SvgOptions {
  std::string title = {};
  int micro_batches = 0;  // as above
};

// The same as an SVG document, which begins so.
inline constexpr std::string_view kSvgBeginning = "<svg data-drawn-by=\"trireme\" ";
std::string schedule_svg(const Schedule& schedule, const ScheduleTiming& timing, const SvgOptions& options = {});

}  // namespace trireme::program
