// What is read off a timeline: time by kind, the picture, the trace.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/trace_format.h"
#include "trireme/program/print.h"
#include "trireme/simulator/simulate.h"

namespace trireme::simulator {
namespace {

using program::Instruction;

bool computes(const Instruction& i) {
  return !i.communicates() && !i.moves() && !i.on_host && (i.stream == 0 || i.stream == program::kGradientStream);
}

// A change in what an actor does: so many more kernels, transfers or copies are under way from then on.
struct Edge {
  double time = 0;
  int compute = 0;
  int communicate = 0;
  int copy = 0;
};

std::vector<Edge> edges_of(const Actor& actor, const std::vector<Span>& spans) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Instruction& instruction = actor.program->instructions[i];
    if (spans[i].end <= spans[i].begin) continue;
    Edge e{spans[i].begin, computes(instruction) ? 1 : 0, instruction.communicates() ? 1 : 0,
           instruction.moves() || instruction.on_host ? 1 : 0};
    edges.push_back(e);
    edges.push_back({spans[i].end, -e.compute, -e.communicate, -e.copy});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
  return edges;
}

char letter_of(const Instruction& i) {
  switch (i.phase) {
    case ir::Phase::forward: return 'F';
    case ir::Phase::input_gradient: return 'B';
    case ir::Phase::weight_gradient: return 'W';
    case ir::Phase::update: break;
  }
  return 'U';
}

}  // namespace

std::vector<TimeByKind> time_by_kind(std::span<const Actor> actors, const Timeline& timeline, bool pipeline) {
  std::vector<TimeByKind> all;
  for (std::size_t a = 0; a < actors.size(); ++a) {
    TimeByKind t;
    double since = 0;
    Edge under_way;
    const auto pass = [&](double until) {
      const double passed = until - since;
      since = until;
      if (under_way.compute > 0)
        t.compute += passed;
      else if (under_way.communicate > 0)
        t.exposed_communication += passed;
      else if (under_way.copy > 0 || !pipeline)
        t.waiting += passed;
      else
        t.bubble += passed;
    };
    for (const Edge& e : edges_of(actors[a], timeline.actors[a])) {
      pass(e.time);
      under_way.compute += e.compute;
      under_way.communicate += e.communicate;
      under_way.copy += e.copy;
    }
    pass(timeline.seconds);
    all.push_back(t);
  }
  return all;
}

std::string utilisation_text(const Simulation& s) {
  std::string text = fmt::format("MFU {:.1f}%", 100 * s.mfu());
  if (s.flops > s.model_flops) text += fmt::format(" (HFU {:.1f}%, with what is recomputed)", 100 * s.hfu());
  return text;
}

std::string picture(const Simulation& s, int width) {
  std::size_t name_width = 0;
  for (const Actor& actor : s.cast.actors) name_width = std::max(name_width, actor.name.size());
  const int columns = std::max(10, width - static_cast<int>(name_width) - 4);
  const double column = s.timeline.seconds / columns;
  std::string out;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    // By column: seconds of each letter; what takes most of it is shown.
    constexpr std::string_view kLetters = "FBWUc";
    std::vector<std::array<double, 5>> seconds(static_cast<std::size_t>(columns));
    const std::vector<Instruction>& all = s.cast.actors[a].program->instructions;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Span& span = s.timeline.actors[a][i];
      if (!computes(all[i]) && !all[i].communicates()) continue;
      const char letter = all[i].communicates() ? 'c' : letter_of(all[i]);
      for (double at = span.begin; at < span.end;) {
        const auto c = std::min(static_cast<std::size_t>(columns) - 1, static_cast<std::size_t>(at / column));
        const double end = c + 1 == static_cast<std::size_t>(columns)
                               ? span.end
                               : std::min(span.end, static_cast<double>(c + 1) * column);
        // Communication that computation hides is not shown.
        seconds[c][kLetters.find(letter)] += (end - at) * (letter == 'c' ? 1e-3 : 1);
        if (end <= at) break;
        at = end;
      }
    }
    std::string line;
    for (const std::array<double, 5>& s_c : seconds) {
      const auto most = std::max_element(s_c.begin(), s_c.end());
      double busy = s_c[0] + s_c[1] + s_c[2] + s_c[3];
      if (*most <= 0)
        line += "·";
      else if (busy >= 0.5 * column || s_c[4] <= 0)
        line += busy >= 0.25 * column ? std::string(1, kLetters[static_cast<std::size_t>(most - s_c.begin())]) : "·";
      else
        line += s_c[4] * 1e3 >= 0.25 * column ? "c" : "·";
    }
    out += fmt::format("  {:<{}}  {}\n", s.cast.actors[a].name, name_width, line);
  }
  return out;
}

std::string trace_json(const Simulation& s) {
  std::string out(kTraceBeginning);
  bool first = true;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a) {
    const std::vector<Instruction>& all = s.cast.actors[a].program->instructions;
    const std::string process = fmt::format("rank {} (simulated, {})", s.cast.rank[a], s.cast.actors[a].name);
    out += fmt::format(R"({}{{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", first ? "" : ",\n",
                       s.cast.rank[a], nlohmann::json(process).dump());
    first = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Span& span = s.timeline.actors[a][i];
      const std::string name = program::kind_of(all[i]) + (all[i].on_host ? "@host " : " ") + all[i].name;
      out += fmt::format(
          ",\n"
          R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
          nlohmann::json(name).dump(), ir::name_of(all[i].phase), s.cast.rank[a], all[i].stream, 1e6 * span.begin,
          1e6 * (span.end - span.begin));
    }
  }
  return out + "\n]}\n";
}

}  // namespace trireme::simulator
