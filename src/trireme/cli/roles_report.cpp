#include "trireme/cli/roles_report.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/axis_parts.h"
#include "trireme/passes/chain.h"
#include "trireme/passes/saved_values.h"
#include "trireme/planner/stage_costs.h"
#include "trireme/program/memory_plan.h"
#include "trireme/program/schedule/picture.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kShownRoles = 16;  // of more, the first and the last few

bool is_shown(std::size_t role, std::size_t roles) {
  return roles <= kShownRoles || role < kShownRoles / 2 || role + kShownRoles / 2 >= roles;
}

// The layers whose parameters a role has: "wte, wpe, blocks.0–5".
std::string layers_of(const train::Role& role) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> found;  // "blocks" and the numbers of its layers
  for (const ir::State& state : role.module.states) {
    if (!state.trained) continue;
    const std::string layer = passes::layer_of(state.name);
    const std::size_t dot = layer.find_last_of('.');
    const bool numbered =
        dot != std::string::npos && layer.find_first_not_of("0123456789", dot + 1) == std::string::npos;
    const std::string name = numbered ? layer.substr(0, dot) : layer;
    if (found.empty() || found.back().first != name) found.push_back({name, {}});
    if (numbered && (found.back().second.empty() || found.back().second.back() != std::stoll(layer.substr(dot + 1))))
      found.back().second.push_back(std::stoll(layer.substr(dot + 1)));
  }
  std::vector<std::string> parts;
  for (auto& [name, numbers] : found) {
    if (numbers.empty()) {
      parts.push_back(name);
      continue;
    }
    // Runs of numbers; the chunks of a stage are several.
    std::vector<std::string> runs;
    for (std::size_t i = 0; i < numbers.size();) {
      std::size_t end = i + 1;
      while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
      runs.push_back(end == i + 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}–{}", numbers[i], numbers[end - 1]));
      i = end;
    }
    parts.push_back(fmt::format("{}.{}", name, fmt::join(runs, ",")));
  }
  return parts.empty() ? "no parameters" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string stages_text(const train::Trainer& trainer) {
  const train::Compiled& c = trainer.compiled();
  if (c.plan.stages() == 1) return {};
  const program::Schedule schedule = planner::schedule_of(c);
  const program::ScheduleCosts costs = planner::stage_costs(c);
  const bool asynchronous = schedule.asynchronous();
  const double bubble =
      asynchronous ? program::steady_state(schedule, costs).bubble : program::time_schedule(schedule, costs).bubble();
  const std::vector<int> held = program::held(schedule);
  std::vector<double> seconds;
  for (const program::ActionCost& cost : costs.stages)
    seconds.push_back(cost.forward + cost.backward + cost.weight_gradient);
  const double mean = std::reduce(seconds.begin(), seconds.end()) / static_cast<double>(seconds.size());
  std::string out = fmt::format("stages  {}: {:.1f}% of the time idle by the ops' costs, messages apart\n",
                                trainer.config().parallel.pipeline.text(), 100 * bubble);
  const auto stages = static_cast<std::size_t>(c.plan.stages());
  const std::vector<const train::Role*> roles = planner::stage_roles(c);
  const std::size_t digits = std::to_string(stages - 1).size();
  for (std::size_t s = 0; s < stages; ++s) {
    if (!is_shown(s, stages)) {
      if (is_shown(s - 1, stages)) out += "        …\n";
      continue;
    }
    const train::Role& role = *roles[s];
    out += fmt::format("        {:>{}}  {:>9} · {:.2f}× the mean time · holds {} {} · {}\n", s, digits,
                       format_bytes(role.arena_bytes), seconds[s] / mean, held[s],
                       schedule.chunks > 1 ? "chunks"
                       : held[s] == 1      ? "micro-batch"
                                           : "micro-batches",
                       layers_of(role));
  }
  // A short one as a picture, too: with a forward and each half of a backward as a unit of time.
  constexpr int kPictureWidth = 110;
  // Of an asynchronous one two steps, with the drain behind them; numbers start again with the second.
  const program::Schedule shown = program::unrolled(schedule, 2);
  const std::string drawn =
      program::picture(shown, program::time_schedule(shown),
                       {.width = kPictureWidth, .micro_batches = asynchronous ? schedule.micro_batches : 0});
  if (std::count(drawn.begin(), drawn.end(), '\n') > c.plan.stages() + 1) return out;
  for (const std::string& line : split(drawn, '\n'))
    if (!line.empty()) out += "        " + line + "\n";
  return out;
}

namespace {

// Whether an axis, or a part of it, is among these.
bool has_axis(const std::vector<std::string>& axes, const std::string& axis) {
  return std::any_of(axes.begin(), axes.end(), [&](const std::string& a) { return ir::axis_of_part(a) == axis; });
}

bool shards_over(const ir::Sharding& sharding, const std::string& axis) {
  return std::any_of(sharding.dims.begin(), sharding.dims.end(),
                     [&](const std::vector<std::string>& axes) { return has_axis(axes, axis); });
}

// All of it is 100%, and nothing else is.
std::string percent(double share) {
  if (share > 0.995 && share < 1) return fmt::format("{:.1f}%", std::min(99.9, 100 * share));
  return fmt::format("{:.0f}%", 100 * share);
}

// Of what the gradients read of the forward phase, the part that ranks along the axis share out: by the bytes that all
// of them save.
std::vector<std::string> activations_over(const train::Compiled& c, const std::string& axis) {
  double sharded = 0;
  double all = 0;
  for (const train::Role& role : c.roles) {
    if (!role.takes_rows() || !role.module.has_graph("micro")) continue;
    const ir::Graph& graph = role.module.graph("micro");
    for (const passes::SavedValue& saved : passes::saved_values(graph)) {
      const ir::ValueInfo& value = graph.value(saved.value);
      const bool own = shards_over(value.sharding, axis);
      const auto bytes = static_cast<double>(value.type.bytes()) * (own ? c.mesh.size_of(axis) : 1);
      all += bytes;
      if (own) sharded += bytes;
    }
  }
  if (sharded == 0) return {};
  return {percent(sharded / all) + " of saved activations"};
}

// The smallest and the largest share of the parameters that a stage has.
std::string stage_shares(const train::Compiled& c) {
  std::map<int, double> elements;  // by stage
  for (const train::Role& role : c.roles)
    if (role.takes_rows() && !elements.contains(role.places.at(ir::kPipelineAxis)))
      for (const ir::State& state : role.module.states)
        if (state.trained)
          elements[role.places.at(ir::kPipelineAxis)] += static_cast<double>(state.global_shape().elements());
  double least = 1;
  double most = 0;
  for (const auto& [stage, own] : elements) {
    least = std::min(least, own / static_cast<double>(c.parameters()));
    most = std::max(most, own / static_cast<double>(c.parameters()));
  }
  return fmt::format("layers: a stage has {} of the parameters",
                     percent(least) == percent(most) ? percent(most) : percent(least) + " to " + percent(most));
}

// Of each kind of state, the part of its bytes that ranks along the axis share out.
std::vector<std::string> shares_over(const train::Compiled& c, const std::string& axis) {
  struct Kind {
    const char* name;
    ir::Category category;
    double sharded;
    double all;
  };
  std::vector<Kind> kinds = {{"weights", ir::Category::weights, 0, 0},
                             {"gradients", ir::Category::gradients, 0, 0},
                             {"optimizer", ir::Category::optimizer, 0, 0}};
  for (const train::Role& role : c.roles)
    for (const ir::State& state : role.module.states)
      for (Kind& kind : kinds) {
        if (state.category != kind.category) continue;
        const auto bytes = static_cast<double>(TensorType{state.type.dtype, state.global_shape()}.bytes());
        kind.all += bytes;
        if (has_axis(state.row_axes, axis) || shards_over(state.sharding, axis)) kind.sharded += bytes;
      }
  std::vector<std::string> shares;
  for (const Kind& kind : kinds)
    if (kind.sharded > 0) shares.push_back(fmt::format("{} of {}", percent(kind.sharded / kind.all), kind.name));
  return shares;
}

// What each axis of the mesh shares out.
std::string axes_text(const train::Compiled& c) {
  std::string out = fmt::format("{:<12}{:>7}  {}\n", "axis", "ranks", "shards");
  for (const ir::Mesh::Axis& axis : c.mesh.axes) {
    std::vector<std::string> what;
    if (axis.name == ir::kDataAxis) what.emplace_back("rows of the batch");
    if (axis.name == ir::kPipelineAxis && axis.size > 1) what.push_back(stage_shares(c));
    if (axis.name == ir::kHeightAxis) what.emplace_back("heights of images");
    if (axis.name == ir::kWidthAxis) what.emplace_back("widths of images");
    for (std::string& share : shares_over(c, axis.name)) what.push_back(std::move(share));
    if (axis.name != ir::kDataAxis)
      for (std::string& share : activations_over(c, axis.name)) what.push_back(std::move(share));
    if (what.empty()) what.emplace_back("nothing");
    out += fmt::format("{:<12}{:>7}  {}\n", axis.name, axis.size, fmt::join(what, ", "));
  }
  return out;
}

}  // namespace

std::string roles_text(const train::Compiled& c) {
  if (c.ranks() < 2) return {};
  std::map<std::size_t, int> ranks;
  for (int r = 0; r < c.ranks(); ++r) ++ranks[c.seat(r).role];
  std::string out = c.mesh.ranks() > 1 ? axes_text(c) + "\n" : "";
  out += fmt::format("{:<12}{:>7}{:>15}", "role", "ranks", "parameters");
  for (int k = 0; k < program::kCategories; ++k)
    out += fmt::format("{:>13}", program::name_of(static_cast<program::Category>(k)));
  out += fmt::format("{:>13}\n", "peak");
  for (std::size_t i = 0; i < c.roles.size(); ++i) {
    if (!is_shown(i, c.roles.size())) {
      if (is_shown(i - 1, c.roles.size())) out += "…\n";
      continue;
    }
    const train::Role& role = c.roles[i];
    const program::PeakReport peak = program::peak(role.largest());
    out += fmt::format("{:<12}{:>7}{:>15}", role.name.empty() ? "rank" : role.name, ranks[i],
                       format_count(role.stored_parameters()));
    for (const std::size_t bytes : peak.categories) out += fmt::format("{:>13}", format_bytes(bytes));
    out += fmt::format("{:>13}\n", format_bytes(peak.bytes));
  }
  return out;
}

std::string launch_text(const train::Compiled& c, const std::string& command) {
  if (c.ranks() == 1) return {};
  std::vector<std::string> terms;
  int stride = c.mesh.ranks();
  int neighbours = 1;  // along the last axes, as many as a node may have
  for (const ir::Mesh::Axis& axis : c.mesh.axes) {
    stride /= axis.size;
    if (axis.size > 1) terms.push_back(stride == 1 ? axis.name : fmt::format("{}·{}", stride, axis.name));
  }
  constexpr int kUsualNode = 8;
  bool whole = true;  // nodes hold all ranks along the axes so far, not a part of them
  for (auto axis = c.mesh.axes.rbegin(); axis != c.mesh.axes.rend() && whole; ++axis) {
    int part = std::min(axis->size, kUsualNode / neighbours);
    while (axis->size % part != 0) --part;
    neighbours *= part;
    whole = part == axis->size;
  }
  // With ranks beyond the mesh, all that one node may have are on it.
  const int node = c.ranks() > c.mesh.ranks() && c.ranks() <= kUsualNode ? c.ranks() : std::max(1, neighbours);
  std::string out = fmt::format("ranks   rank = {}", fmt::join(terms, " + "));
  if (const int more = c.ranks() - c.mesh.ranks(); more > 0)
    out += fmt::format("; the last {} {} {}{}", more, more == 1 ? "is a" : "are", c.roles.back().kind,
                       more == 1 ? "" : "s");
  out += fmt::format("\nlaunch  mpirun -n {} {}\n", c.ranks(), command);
  out += fmt::format("        srun --ntasks={} --ntasks-per-node={} {}\n", c.ranks(), node, command);
  return out;
}

}  // namespace trireme::cli
