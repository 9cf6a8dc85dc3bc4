#include "trireme/cli/bench_chosen.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "trireme/cli/bench.h"
#include "trireme/cli/calibration.h"
#include "trireme/cli/measured_step.h"
#include "trireme/cli/output.h"
#include "trireme/cli/token_file.h"
#include "trireme/core/error.h"
#include "trireme/train/plan_search.h"

namespace trireme::cli {
namespace {

struct Case {
  const char* family;
  int width, context, batch, ranks;
  const char* link;  // "": threads
};
constexpr std::array<Case, 10> kCases = {{{"gpt2", 128, 128, 16, 2, ""},
                                          {"llama", 128, 128, 16, 4, "1GB/s,20us"},
                                          {"gpt2", 256, 64, 16, 4, "200MB/s,50us"},
                                          {"llama", 256, 128, 8, 2, "200MB/s,50us"},
                                          {"gpt2", 64, 256, 16, 2, "1GB/s,20us"},
                                          {"llama", 64, 64, 32, 4, ""},
                                          {"gpt2", 256, 128, 8, 4, "1GB/s,20us"},
                                          {"llama", 256, 64, 32, 2, ""},
                                          {"gpt2", 128, 64, 32, 4, "200MB/s,50us"},
                                          {"llama", 128, 256, 8, 2, "1GB/s,20us"}}};

struct ChosenResult {
  std::string name;
  planner::Candidate chosen, best;
  double chosen_seconds = 0, best_seconds = 0;
  std::size_t measured = 0;
  std::size_t faster = 0;  // plans that were measured faster than the choice
};

train::Config config_of(const Case& c, const std::string& tokens, const train::Registry& registry) {
  const std::vector<std::string> settings = {fmt::format("model.family={}", c.family),
                                             "model.layers=4",
                                             "model.heads=4",
                                             "model.vocab=256",
                                             fmt::format("model.width={}", c.width),
                                             fmt::format("model.context={}", c.context),
                                             "data.tokens=" + tokens,
                                             fmt::format("train.batch={}", c.batch),
                                             "runtime.device=cpu",
                                             "runtime.threads=1",
                                             fmt::format("runtime.link={}", c.link),
                                             fmt::format("parallel.mesh=dp={}", c.ranks)};
  return train::parse_config("", "case", settings, registry.models);
}

// The choice first, then others at random, each once; only what can be compiled.
std::vector<planner::Candidate> drawn(const train::PlanSearch& search, const planner::Candidate& chosen, int of,
                                      SplitMix& random) {
  std::vector<planner::Candidate> space = planner::enumerate(search.problem().space);
  std::vector<planner::Candidate> plans = {chosen};
  while (static_cast<int>(plans.size()) < of && !space.empty()) {
    const auto at =
        std::min(space.size() - 1, static_cast<std::size_t>(random.unit() * static_cast<double>(space.size())));
    const planner::Candidate other = space[at];
    space.erase(space.begin() + static_cast<std::ptrdiff_t>(at));
    if (other != chosen && !other.offload.any() && search.problem().score(other).feasible()) plans.push_back(other);
  }
  return plans;
}

ChosenResult measured(const Context& context, const Case& c, const std::string& tokens, const cluster::Cluster& cluster,
                      int of, int steps, SplitMix& random, WorkProgress& progress) {
  const train::Config config = config_of(c, tokens, *context.registry);
  train::PlanRequest request;
  request.cluster = cluster;
  request.ranks = c.ranks;
  request.fixed = {"memory.offload"};
  const train::PlanSearch search(config, *context.registry, request);
  ChosenResult r;
  r.name = fmt::format("{} width {} context {} batch {}, {} ranks{}{}", c.family, c.width, c.context, c.batch, c.ranks,
                       *c.link == 0 ? "" : ", ", c.link);
  r.chosen = search.run().best.front().candidate;
  const std::vector<planner::Candidate> plans = drawn(search, r.chosen, of, random);
  std::vector<std::vector<double>> took(plans.size());
  std::vector<double> seconds(plans.size(), 0);
  // Several rounds, so that a busy moment does not fall on one of them alone. What is far behind is measured once.
  constexpr int kRounds = 3;
  constexpr double kFar = 1.3;
  for (int round = 0; round < kRounds; ++round) {
    const double near = round == 0 ? 0 : kFar * *std::min_element(seconds.begin(), seconds.end());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      progress.count("measuring plans", static_cast<std::size_t>(round) * plans.size() + i, kRounds * plans.size());
      if (round > 0 && i > 0 && seconds[i] > near) continue;
      train::Config own = search.under(plans[i]);
      own.runtime.link = c.link;
      const std::vector<double> more = measured_steps(own, *context.registry, {.steps = steps, .budget = 0.2});
      took[i].insert(took[i].end(), more.begin(), more.end());
      seconds[i] = median(took[i]);
    }
  }
  const auto best = static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
  r.best = plans[best];
  r.best_seconds = seconds[best];
  r.chosen_seconds = seconds.front();
  r.measured = plans.size();
  for (const double s : seconds) r.faster += s < seconds.front() ? 1 : 0;
  return r;
}

}  // namespace

int bench_chosen(const Context& context, int cases, int of, int steps, std::uint64_t seed, bool json) {
  const TokenFile tokens;
  SplitMix random(seed);
  WorkProgress progress;
  std::vector<train::Config> usual;
  for (int i = 0; i < cases; ++i) {
    const Case& c = kCases[static_cast<std::size_t>(i)];
    const train::Config config = config_of(c, tokens.path(), *context.registry);
    for (train::Config& one : with_usual_plans(config, *context.registry, c.ranks)) usual.push_back(std::move(one));
  }
  const cluster::Cluster cluster =
      calibrated(usual, *context.registry, device::Kind::cpu, progress, Calibration::quick);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  int near = 0;
  for (int i = 0; i < cases; ++i) {
    const ChosenResult r =
        measured(context, kCases[static_cast<std::size_t>(i)], tokens.path(), cluster, of, steps, random, progress);
    const double ratio = r.chosen_seconds / r.best_seconds;
    near += ratio <= 1.1 ? 1 : 0;
    all.push_back({{"case", r.name},
                   {"chosen", planner::describe(r.chosen)},
                   {"chosen_ms", 1e3 * r.chosen_seconds},
                   {"best", planner::describe(r.best)},
                   {"best_ms", 1e3 * r.best_seconds},
                   {"ratio", ratio},
                   {"faster", r.faster},
                   {"measured", r.measured}});
    if (json) continue;
    progress.finish();
    say(stdout,
        "{}\n  chosen {:>9.2f} ms  {}\n  best   {:>9.2f} ms  {}\n  {:.2f} times the best; {} of {} are faster\n",
        r.name, 1e3 * r.chosen_seconds, planner::describe(r.chosen), 1e3 * r.best_seconds, planner::describe(r.best),
        ratio, r.faster, r.measured);
  }
  progress.finish();
  if (json)
    say(stdout, all.dump() + "\n");
  else
    say(stdout, "\n{} of {} choices are within 10% of the best that was measured\n", near, cases);
  return 0;
}

}  // namespace trireme::cli
