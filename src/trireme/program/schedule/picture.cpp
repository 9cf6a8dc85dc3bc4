#include "trireme/program/schedule/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace trireme::program {
namespace {

using Kind = Action::Kind;

constexpr std::string_view kLine = "━";
constexpr std::string_view kDot = "·";
constexpr int kTick = 5;  // units of time between the numbers above

// A column of the picture.
struct Glyph {
  std::string text = " ";
  std::optional<Kind> kind = {};
};
using Row = std::vector<Glyph>;

std::string_view colour_of(const std::optional<Kind>& kind) {
  if (!kind) return "\x1b[0m";
  switch (*kind) {
    case Kind::forward: return "\x1b[30;48;5;117m";
    case Kind::backward: return "\x1b[30;48;5;114m";
    case Kind::weight_gradient: return "\x1b[30;48;5;222m";
    case Kind::update: break;
  }
  return "\x1b[0m";
}

class Canvas {
 public:
  Canvas(const Schedule& schedule, const ScheduleTiming& timing, const PictureOptions& options)
      : schedule_(schedule), timing_(timing), options_(options) {
    for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
      for (std::size_t a = 0; a < schedule.stages[stage].size(); ++a)
        if (drawn(stage, a)) cell_ = std::max(cell_, token(schedule.stages[stage][a]).size() + 1);
    units_ = static_cast<std::size_t>(std::ceil(timing.makespan));
  }

  std::string draw() const {
    std::vector<Row> rows;
    for (std::size_t stage = 0; stage < schedule_.stages.size(); ++stage) rows.push_back(row(stage));
    const std::size_t label = fmt::format("stage {}  ", schedule_.stages.size() - 1).size();
    const std::size_t room = std::max<int>(options_.width - static_cast<int>(label), 1);
    const std::size_t band = std::max<std::size_t>(room / cell_, 1);
    std::string out;
    for (std::size_t from = 0; from < units_; from += band) {
      const std::size_t to = std::min(from + band, units_);
      out += from == 0 ? "" : "\n";
      out += line(fmt::format("{:<{}}", "time", label), ticks(from, to));
      for (std::size_t stage = 0; stage < rows.size(); ++stage)
        out += line(fmt::format("{:<{}}", fmt::format("stage {}", stage), label),
                    text(rows[stage], from * cell_, to * cell_));
    }
    return out;
  }

 private:
  bool drawn(std::size_t stage, std::size_t a) const {
    return timing_.stages[stage][a].finish > timing_.stages[stage][a].start;
  }

  std::string token(Action action) const {
    if (options_.micro_batches > 0) action.micro %= options_.micro_batches;
    return to_text(action);
  }

  std::size_t column(double time) const {
    return static_cast<std::size_t>(std::llround(time * static_cast<double>(cell_)));
  }

  Row row(std::size_t stage) const {
    Row row(units_ * cell_);
    std::vector<bool> busy(row.size());
    for (std::size_t a = 0; a < schedule_.stages[stage].size(); ++a) {
      if (!drawn(stage, a)) continue;
      const ScheduleTiming::Slot& slot = timing_.stages[stage][a];
      const Action& action = schedule_.stages[stage][a];
      const std::string name = token(action);
      const std::size_t start = column(slot.start);
      const std::size_t finish = column(slot.finish);
      // The last column stays blank, so that neighbours can be distinguished.
      for (std::size_t at = start; at < finish; ++at) {
        busy[at] = true;
        if (at + 1 == finish) continue;
        row[at].kind = action.kind;
        if (at - start < name.size())
          row[at].text = name[at - start];
        else
          row[at].text = finish - start > cell_ ? kLine : " ";
      }
    }
    for (std::size_t unit = 0; unit < units_; ++unit)
      for (std::size_t at = unit * cell_; at < unit * cell_ + 2; ++at)
        if (!busy[at]) row[at].text = kDot;
    return row;
  }

  std::string text(const Row& row, std::size_t from, std::size_t to) const {
    std::string out;
    std::optional<Kind> now;
    for (std::size_t at = from; at < to; ++at) {
      if (options_.colour && row[at].kind != now) out += colour_of(row[at].kind);
      now = row[at].kind;
      out += row[at].text;
    }
    return options_.colour && now ? out + "\x1b[0m" : out;
  }

  std::string ticks(std::size_t from, std::size_t to) const {
    std::string out;
    for (std::size_t unit = from; unit < to; ++unit)
      if (unit == from || unit % kTick == 0) {
        const std::size_t at = (unit - from) * cell_;
        if (!out.empty() && out.size() >= at) continue;  // the number before it is in the way
        out.resize(at, ' ');
        out += fmt::format("{}", unit);
      }
    return out;
  }

  static std::string line(const std::string& label, const std::string& text) {
    std::string all = label + text;
    while (all.ends_with(' ')) all.pop_back();
    return all + "\n";
  }

  const Schedule& schedule_;
  const ScheduleTiming& timing_;
  const PictureOptions& options_;
  std::size_t cell_ = 3;  // columns per unit of time: the longest name and a blank
  std::size_t units_ = 0;
};

}  // namespace

std::string picture(const Schedule& schedule, const ScheduleTiming& timing, const PictureOptions& options) {
  return Canvas(schedule, timing, options).draw();
}

}  // namespace trireme::program
