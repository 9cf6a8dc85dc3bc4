#include <fmt/format.h>

#include <iterator>

#include "trireme/program/schedule/picture.h"

namespace trireme::program {
namespace {

using Kind = Action::Kind;

constexpr double kUnit = 26;  // pixels per unit of time
constexpr double kRow = 30;
constexpr double kLeft = 64;
constexpr double kTop = 34;
constexpr int kTickTime = 5;  // units of time between the numbers below

std::string_view fill_of(Kind kind) {
  switch (kind) {
    case Kind::forward: return "#8ecae6";
    case Kind::backward: return "#95d5b2";
    case Kind::weight_gradient: return "#ffd166";
    case Kind::update: break;
  }
  return "#adb5bd";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string schedule_svg(const Schedule& schedule, const ScheduleTiming& timing, const SvgOptions& options) {
  const auto stages = static_cast<double>(schedule.stages.size());
  const double width = kLeft + timing.makespan * kUnit + 16;
  const double height = kTop + stages * kRow + 52;
  std::string out = fmt::format(
      "{2}xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} {1:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      width, height, kSvgBeginning);
  auto to = std::back_inserter(out);
  fmt::format_to(to, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  fmt::format_to(to, "<text x=\"8\" y=\"20\" font-weight=\"bold\">{}</text>\n", escaped(options.title));
  bool split = false;
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    const double y = kTop + static_cast<double>(stage) * kRow;
    fmt::format_to(to, "<text x=\"8\" y=\"{:g}\">stage {}</text>\n", y + 19, stage);
    fmt::format_to(to, "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"#f1f3f5\"/>\n", kLeft, y + 2,
                   timing.makespan * kUnit, kRow - 4);
    for (std::size_t a = 0; a < schedule.stages[stage].size(); ++a) {
      Action action = schedule.stages[stage][a];
      const ScheduleTiming::Slot& slot = timing.stages[stage][a];
      if (slot.finish <= slot.start) continue;
      split |= action.kind == Kind::weight_gradient;
      if (options.micro_batches > 0) action.micro %= options.micro_batches;
      const double x = kLeft + slot.start * kUnit;
      const double long_ = (slot.finish - slot.start) * kUnit;
      const std::string name = to_text(action);
      fmt::format_to(to,
                     "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\" stroke=\"white\">"
                     "<title>{}: {:g} to {:g}</title></rect>\n",
                     x, y + 2, long_, kRow - 4, fill_of(action.kind), name, slot.start, slot.finish);
      fmt::format_to(to, "<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\" font-size=\"{}\">{}</text>\n",
                     x + long_ / 2, y + 19, name.size() > 3 ? 8 : 11, name);
    }
  }
  const double bottom = kTop + stages * kRow + 14;
  for (int time = 0; time <= timing.makespan; time += kTickTime)
    fmt::format_to(to, "<text x=\"{:g}\" y=\"{:g}\" fill=\"#868e96\" font-size=\"10\">{}</text>\n",
                   kLeft + time * kUnit, bottom, time);
  double x = kLeft;
  const auto legend = [&](std::string_view fill, const char* text) {
    fmt::format_to(to, "<rect x=\"{:g}\" y=\"{:g}\" width=\"12\" height=\"12\" fill=\"{}\"/>", x, bottom + 12, fill);
    fmt::format_to(to, "<text x=\"{:g}\" y=\"{:g}\">{}</text>\n", x + 17, bottom + 22, text);
    x += 130;
  };
  legend(fill_of(Kind::forward), "forward");
  legend(fill_of(Kind::backward), split ? "input gradients" : "backward");
  if (split) legend(fill_of(Kind::weight_gradient), "weight gradients");
  legend("#f1f3f5", "idle");
  return out + "</svg>\n";
}

}  // namespace trireme::program
