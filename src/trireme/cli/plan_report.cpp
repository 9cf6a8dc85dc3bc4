#include "trireme/cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "trireme/core/atomic_file.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/plan_search.h"
#include "trireme/train/run_folder.h"

namespace trireme::cli {
namespace {

using planner::Scored;
using simulator::TimeByKind;

struct Kind {
  const char* name;
  double TimeByKind::*seconds;
};
constexpr std::array<Kind, 4> kKinds = {{{"compute", &TimeByKind::compute},
                                         {"exposed communication", &TimeByKind::exposed_communication},
                                         {"pipeline bubble", &TimeByKind::bubble},
                                         {"waiting", &TimeByKind::waiting}}};

std::string kinds_text(const TimeByKind& t) {
  std::string text;
  for (const Kind& kind : kKinds)
    text += fmt::format("{}{} {:.1f}%", text.empty() ? "" : " · ", kind.name, 100 * (t.*kind.seconds) / t.total());
  return text;
}

// The kinds of time in which one differs most from another.
std::string why_slower(const Scored& slower, const Scored& best) {
  std::vector<std::pair<double, const char*>> more;
  more.reserve(kKinds.size());
  for (const Kind& kind : kKinds) more.emplace_back(slower.mean.*kind.seconds - best.mean.*kind.seconds, kind.name);
  std::sort(more.rbegin(), more.rend());
  std::string text = fmt::format("{:+.1f}% a step: {} of {} more", 100 * (slower.seconds / best.seconds - 1),
                                 seconds_text(more.front().first), more.front().second);
  if (more.back().first < 0)
    text += fmt::format(", {} of {} less", seconds_text(-more.back().first), more.back().second);
  return text;
}

std::string limits(const PlanReport& r) {
  const TimeByKind& t = r.simulation.mean;
  const Kind* largest = &kKinds[1];
  for (const Kind& kind : kKinds)
    if (kind.seconds != &TimeByKind::compute && t.*kind.seconds > t.*(largest->seconds)) largest = &kind;
  const double share = t.*(largest->seconds) / t.total();
  std::string text = share < 0.1 ? fmt::format("its kernels: {:.0f}% of the step computes", 100 * t.compute / t.total())
                                 : fmt::format("{}: {:.0f}% of the step", largest->name, 100 * share);
  const double filled = static_cast<double>(r.on.compiled.arena_bytes()) / r.limit;
  if (filled > 0.8) text += fmt::format("; and memory: {:.0f}% of a rank's is planned", 100 * filled);
  if (!r.result.others.empty()) {
    const Scored* quicker = nullptr;
    for (const Scored& s : r.result.others)
      if (s.refused.empty() && s.seconds < r.simulation.step_seconds &&
          (quicker == nullptr || s.seconds < quicker->seconds))
        quicker = &s;
    if (quicker != nullptr)
      text += fmt::format("\n        with more memory: {} takes {} and needs {}", planner::describe(quicker->candidate),
                          seconds_text(quicker->seconds), format_bytes(quicker->bytes));
  }
  return text;
}

std::string more_text(const char* what, double gain) {
  if (gain <= 0) return fmt::format("{}: no plan fits or divides", what);
  return fmt::format("{}: {:.2f} times the {}", what, gain, "throughput");
}

}  // namespace

std::string seconds_text(double seconds) {
  return seconds >= 10 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.4g} ms", 1e3 * seconds);
}

std::string plan_summary(const PlanReport& r) {
  const simulator::Simulation& s = r.simulation;
  const cluster::Cluster& c = r.on.cluster;
  const int ranks = r.on.compiled.ranks();
  const std::int64_t nodes = c.node_of(ranks - 1) + 1;
  std::string out = fmt::format("cluster {}: {} × {} in {} node{}, software {}\n", c.name, ranks, c.device.name, nodes,
                                nodes == 1 ? "" : "s", c.generation);
  out += fmt::format("search  {} plans: {} too large, {} estimated, {} compiled and simulated{}\n",
                     format_count(r.result.candidates), format_count(r.result.too_large),
                     format_count(r.result.estimated), r.result.best.size() + r.result.others.size(),
                     r.result.stopped ? "; stopped, this is the best so far" : "");
  out += fmt::format("took    {:.1f} s ({:.1f} of CPU), and {:.1f} s ({:.1f} of CPU) to compile the winner in full\n",
                     r.result.searched.wall, r.result.searched.cpu, r.result.confirmed.wall, r.result.confirmed.cpu);
  out += fmt::format("plan    {}\n", planner::describe(r.candidate));
  if (r.candidate.pp > 1 && !r.candidate.stages.empty())
    out += fmt::format("stages  {} layers\n", fmt::join(r.candidate.stages, ", "));
  out +=
      fmt::format("step    {}, {} {}/s, {}\n", seconds_text(s.step_seconds), format_rate(r.on.tokens / s.step_seconds),
                  r.on.images ? "images" : "tokens", simulator::utilisation_text(s));
  out += fmt::format("time    {}\n", kinds_text(s.mean));
  out += fmt::format("memory  {} B on the largest rank, of {}\n", format_count(r.on.compiled.arena_bytes()),
                     format_bytes(static_cast<std::uint64_t>(r.limit)));
  if (r.result.bound > 0)
    out +=
        fmt::format("bound   the kernels alone, shared evenly by all devices: {}; this plan takes {:.2f} times that\n",
                    seconds_text(r.result.bound), s.step_seconds / r.result.bound);
  if (r.on.foreign) out += "note    this build lowers for a CPU: a GPU's workspaces and fused kernels differ\n";
  return out;
}

std::string explanation(const PlanReport& r) {
  std::string out = fmt::format("\n{:>12}{:>10}{:>10}{:>9}{:>9}{:>9}{:>12}  plan\n", "step", "estimate", "compute",
                                "exposed", "bubble", "waiting", "memory");
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, r.result.best.size()); ++i) {
    const Scored& s = r.result.best[i];
    out += fmt::format("{:>12}{:>+9.1f}%", seconds_text(s.seconds), 100 * (s.estimated / s.seconds - 1));
    for (const auto& [kind, width] : {std::pair(0, 9), std::pair(1, 8), std::pair(2, 8), std::pair(3, 8)})
      out += fmt::format("{:>{}.1f}%",
                         100 * (s.mean.*(kKinds[static_cast<std::size_t>(kind)].seconds)) / s.mean.total(), width);
    out += fmt::format("{:>12}  {}\n", format_bytes(s.bytes), planner::describe(s.candidate));
  }
  out += "\n";
  if (r.result.best.size() > 1)
    out += fmt::format("second  {}: {}\n", planner::describe(r.result.best[1].candidate),
                       why_slower(r.result.best[1], r.result.best[0]));
  out += fmt::format("limit   {}\n", limits(r));
  if (!r.result.stopped)
    out += fmt::format("more    {}; {}\n", more_text("twice the batch", r.larger_batch),
                       more_text("one more node", r.another_node));
  return out;
}

nlohmann::ordered_json plan_json(const PlanReport& r) {
  const simulator::Simulation& s = r.simulation;
  nlohmann::ordered_json o = {{"cluster", r.on.cluster.name},
                              {"ranks", r.on.compiled.ranks()},
                              {"mesh", planner::mesh_text(r.candidate)},
                              {"plan", planner::describe(r.candidate)},
                              {"settings", train::settings_of(r.candidate)},
                              {"predicted_step_ms", 1e3 * s.step_seconds},
                              {"tokens_per_s", r.on.tokens / s.step_seconds},
                              {"mfu", s.mfu()},
                              {"hfu", s.hfu()},
                              {"peak_bytes", r.on.compiled.arena_bytes()},
                              {"bound_ms", 1e3 * r.result.bound},
                              {"candidates", r.result.candidates},
                              {"too_large", r.result.too_large},
                              {"search_s", r.result.searched.wall},
                              {"search_cpu_s", r.result.searched.cpu},
                              {"compile_s", r.result.confirmed.wall},
                              {"compile_cpu_s", r.result.confirmed.cpu},
                              {"stopped", r.result.stopped},
                              {"launch", r.launch},
                              {"runners_up", nlohmann::ordered_json::array()}};
  for (const Scored& scored : r.result.best) {
    if (scored.candidate == r.candidate) continue;
    o["runners_up"].push_back({{"plan", planner::describe(scored.candidate)},
                               {"settings", train::settings_of(scored.candidate)},
                               {"predicted_step_ms", 1e3 * scored.seconds},
                               {"estimated_ms", 1e3 * scored.estimated},
                               {"peak_bytes", scored.bytes}});
  }
  return o;
}

void check_plan_out(const std::string& option, const std::string& file) {
  if (file.empty()) return;
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown) && !train::is_plan(file))
    refuse("{} {}: that is there, and is no plan; name another file", option, file);
  // By its own plan a run is resumed.
  const auto folder = std::filesystem::absolute(file).parent_path();
  if (std::filesystem::exists(file, unknown) && train::holds_run(folder))
    refuse("{} {}: that is the plan of the run in {}; name another file", option, file,
           std::filesystem::path(file).parent_path().string());
  train::check_place(file, fmt::format("{} {}", option, file));
}

void write_plan(const std::string& file, const std::string& text) {
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder);
  write_file_atomically(file, text);
}

}  // namespace trireme::cli
