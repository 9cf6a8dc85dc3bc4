#include "trireme/cli/published.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "trireme/cli/bench.h"
#include "trireme/cli/output.h"
#include "trireme/cli/published_table.h"
#include "trireme/cli/work_progress.h"
#include "trireme/core/error.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"
#include "trireme/train/plan_search.h"

namespace trireme::cli {
namespace {

struct Predicted {
  std::string name;
  double predicted = 0;
  double published = 0;
  std::string unit;
  std::string refused;  // why it cannot be compiled
  bool fits = true;
  double step = 0;     // seconds, predicted
  double planned = 0;  // seconds of the plan that the search finds for the same model and devices; 0: not asked
  std::string plan;    // that plan
  double data = 0;     // seconds of plain data parallelism; 0: it does not fit or divide the batch
  simulator::TimeByKind kinds;

  // In the unit of the row.
  double error() const { return predicted / published - 1; }
  // Behind what hands would have run, of what fits. The search times large models by shorter ones of the same plan.
  bool behind() const {
    constexpr double kRounding = 1.005;
    return (fits && planned > kRounding * step) || (data > 0 && planned > kRounding * data);
  }
};

// What the planner would have done with the same model on the same devices.
void plan_for(const Context& context, const train::Config& config, const cluster::Cluster& cluster, int ranks,
              Predicted& p) {
  train::PlanRequest request;
  request.cluster = cluster;
  request.ranks = ranks;
  const train::PlanSearch search(config, *context.registry, request);
  const planner::SearchResult found = search.run();
  p.planned = found.best.front().seconds;
  p.plan = planner::describe(found.best.front().candidate);
  // Plain data parallelism, with the most rows at once that fit.
  planner::Candidate data{.pp = 1, .dp = ranks};
  for (std::int64_t rows = 1; config.train.batch % (ranks * rows) == 0; rows *= 2) {
    data.layer.micro_batch = rows;
    const planner::Scored s = search.problem().score(data);
    if (!s.feasible()) break;
    p.data = p.data == 0 ? s.seconds : std::min(p.data, s.seconds);
  }
}

Predicted predict(const Context& context, const PublishedRun& row, bool planned) {
  Predicted p{.name = row.name, .published = row.value, .unit = row.unit, .refused = "", .plan = "", .kinds = {}};
  try {
    if (row.context_ranks != 1)
      refuse("{}: cp = {}: context parallelism is not built yet", row.place, row.context_ranks);
    const train::Config config = train::parse_config("", row.place, row.settings, context.registry->models);
    const train::OnCluster on = train::compile_on(config, *context.registry, row.cluster);
    const simulator::Simulation s = simulator::simulate(on.compiled, on.cluster);
    p.predicted = in_unit(row, s.step_seconds);
    p.fits = s.fits;
    p.kinds = s.mean;
    p.step = s.step_seconds;
    if (planned) plan_for(context, config, row.cluster, on.compiled.ranks(), p);
  } catch (const Error& e) {
    p.refused = e.message();
  }
  return p;
}

std::string table(const std::vector<Predicted>& rows) {
  std::string out = fmt::format("{:<26}{:>12}{:>12}{:>9}  {:<15}{:>8}{:>9}{:>8}{:>9}\n", "run", "predicted",
                                "published", "error", "unit", "compute", "exposed", "bubble", "waiting");
  std::vector<double> errors;
  for (const Predicted& p : rows) {
    if (!p.refused.empty()) {
      out += fmt::format("{:<26}not simulated: {}\n", p.name, p.refused);
      continue;
    }
    errors.push_back(std::abs(p.error()));
    const auto share = [&](double seconds) { return fmt::format("{:.1f}%", 100 * seconds / p.kinds.total()); };
    out +=
        fmt::format("{:<26}{:>12.4g}{:>12.4g}{:>+8.1f}%  {:<15}{:>8}{:>9}{:>8}{:>9}{}\n", p.name, p.predicted,
                    p.published, 100 * p.error(), p.unit, share(p.kinds.compute), share(p.kinds.exposed_communication),
                    share(p.kinds.bubble), share(p.kinds.waiting), p.fits ? "" : "  plan exceeds the memory");
    if (p.planned > 0)
      out += fmt::format("{:<26}{:>12.4g}{:>12.4g}{:>8.2f}×  {}; data parallelism {}{}\n", "  planned, s", p.planned,
                         p.step, p.step / p.planned, p.plan,
                         p.data > 0 ? fmt::format("{:.4g}", p.data) : "does not fit", p.behind() ? "  BEHIND" : "");
  }
  if (errors.empty()) return out;
  out += fmt::format("\nerror: {:.1f}% in the median, {:.1f}% at most, over {} of {} runs\n", 100 * median(errors),
                     100 * *std::max_element(errors.begin(), errors.end()), errors.size(), rows.size());
  const auto planned = std::count_if(rows.begin(), rows.end(), [](const Predicted& p) { return p.planned > 0; });
  const auto behind =
      std::count_if(rows.begin(), rows.end(), [](const Predicted& p) { return p.planned > 0 && p.behind(); });
  if (planned > 0)
    out += fmt::format("planned: {} of {} plans are behind the published ones that fit, or behind data parallelism\n",
                       behind, planned);
  return out;
}

}  // namespace

int simulate_published(const Context& context, const std::string& file, bool json, bool planned) {
  const std::vector<PublishedRun> rows = read_published(file);
  std::vector<Predicted> results;
  WorkProgress progress;
  for (const PublishedRun& row : rows) {
    progress.count("simulating " + row.name, results.size(), rows.size());
    results.push_back(predict(context, row, planned));
  }
  progress.finish();
  if (!json) {
    say(stdout, table(results));
    return 0;
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Predicted& p : results) {
    nlohmann::ordered_json o = {{"name", p.name}};
    if (p.refused.empty()) {
      o["predicted"] = p.predicted;
      o["published"] = p.published;
      o["error"] = p.error();
      o["unit"] = p.unit;
      o["fits"] = p.fits;
      o["step_ms"] = 1e3 * p.step;
      if (p.planned > 0) {
        o["planned_step_ms"] = 1e3 * p.planned;
        o["planned"] = p.plan;
        o["data_parallel_step_ms"] = 1e3 * p.data;
        o["behind"] = p.behind();
      }
    } else {
      o["published"] = p.published;
      o["refused"] = p.refused;
    }
    all.push_back(o);
  }
  say(stdout, all.dump() + "\n");
  return 0;
}

}  // namespace trireme::cli
