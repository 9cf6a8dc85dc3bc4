#include "trireme/train/pipeline_warnings.h"

#include <fmt/format.h>

#include "trireme/planner/stage_costs.h"
#include "trireme/train/statistics_warning.h"

namespace trireme::train {

std::vector<std::string> pipeline_warnings(const compiler::Compiled& c) {
  std::vector<std::string> warnings;
  const int stages = c.plan.stages();
  if (stages == 1 || c.steps.empty()) return warnings;
  const program::ScheduleCosts costs = planner::stage_costs(c);
  // More micro-batches would have fewer rows, which batch norms need.
  if (c.micro_batches < stages && !has_batch_norms(c))
    warnings.push_back(
        fmt::format("{} micro-batch{} for {} stages leave{} most of them idle; train.micro_batch = {} would make {}",
                    c.micro_batches, c.micro_batches == 1 ? "" : "es", stages, c.micro_batches == 1 ? "s" : "",
                    std::max<std::int64_t>(1, c.micro_rows / c.replicas * c.micro_batches / (4 * stages)),
                    std::min<std::int64_t>(4 * stages, c.micro_rows / c.replicas * c.micro_batches)));
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
  if (seconds(longest) > 2 * mean)
    warnings.push_back(fmt::format(
        "stage {} takes {:.1f}× the mean time of a stage, and the others wait for it; {}", longest,
        seconds(longest) / mean,
        c.plan.stage_layers.empty() ? "fewer stages would be balanced better" : "parallel.stages = [] balances them"));
  return warnings;
}

}  // namespace trireme::train
