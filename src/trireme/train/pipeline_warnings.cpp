#include "trireme/train/pipeline_warnings.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/planner/stage_costs.h"
#include "trireme/train/statistics_warning.h"

namespace trireme::train {
namespace {

// The keys that would fill the stages, as the end of a sentence; empty where a file says how many micro-batches there
// are.
std::string more_micro_batches(const compiler::Compiled& c) {
  if (c.plan.schedule_given) return "";
  const std::int64_t wanted = 4 * static_cast<std::int64_t>(c.plan.stages());
  const std::int64_t share = c.micro_rows / c.replicas * c.micro_batches;
  std::int64_t rows = std::max<std::int64_t>(1, share / wanted);
  while (share % rows != 0) --rows;
  if (share / rows > c.micro_batches) return fmt::format("; train.micro_batch = {} would make {}", rows, share / rows);
  return fmt::format("; train.batch = {} and train.micro_batch = {} would make {}", wanted * c.replicas, 1, wanted);
}

}  // namespace

std::vector<std::string> pipeline_warnings(const compiler::Compiled& c) {
  std::vector<std::string> warnings;
  const int stages = c.plan.stages();
  if (stages == 1 || c.steps.empty()) return warnings;
  const program::ScheduleCosts costs = planner::stage_costs(c);
  // More micro-batches would have fewer rows, which batch norms need.
  if (c.micro_batches < stages && !has_batch_norms(c))
    warnings.push_back(fmt::format("{} micro-batch{} for {} stages leave{} most of them idle{}", c.micro_batches,
                                   c.micro_batches == 1 ? "" : "es", stages, c.micro_batches == 1 ? "s" : "",
                                   more_micro_batches(c)));
  double sum = 0;
  std::size_t longest = 0;
  const auto seconds = [&](std::size_t s) {
    return costs.stages[s].forward + costs.stages[s].backward + costs.stages[s].weight_gradient;
  };
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    sum += seconds(s);
    if (seconds(s) > seconds(longest)) longest = s;
  }
  const double mean = sum / static_cast<double>(stages);
  // Of two stages the longer one takes twice the mean at most.
  if (seconds(longest) > (stages == 2 ? 1.6 : 2) * mean)
    warnings.push_back(fmt::format(
        "stage {} takes {:.1f}× the mean time of a stage, and the others wait for it; {}", longest,
        seconds(longest) / mean,
        c.plan.stage_layers.empty()
            ? fmt::format(
                  "a model is cut where one tensor alone goes on, or a numbered layer begins (b.scope(\"blocks\", "
                  "i)), and these are too far apart here{}",
                  stages == 2 ? "" : ": fewer stages would be balanced better")
            : "parallel.stages = [] balances them"));
  return warnings;
}

}  // namespace trireme::train
