// What a candidate of a search takes: declared in plan_search.h.
#include <algorithm>
#include <cmath>
#include <future>
#include <utility>
#include <vector>

#include "trireme/compiler/micro_batches.h"
#include "trireme/core/error.h"
#include "trireme/planner/live_places.h"
#include "trireme/train/plan_search.h"

namespace trireme::train {
namespace {

// What a quantity comes to that grows in proportion: `two`, and `further` times what it has more than `one`.
void extend(planner::Scored& two, const planner::Scored& one, double further) {
  const auto grow = [&](double& value, double before) { value += further * (value - before); };
  grow(two.seconds, one.seconds);
  grow(two.mean.compute, one.mean.compute);
  grow(two.mean.exposed_communication, one.mean.exposed_communication);
  grow(two.mean.bubble, one.mean.bubble);
  grow(two.mean.waiting, one.mean.waiting);
  two.work += one.work;
}

// The fullest role's arena in a model of further layers.
double extended_bytes(const Compiled& one, const Compiled& two, double further) {
  double most = 0;
  for (std::size_t r = 0; r < two.roles.size(); ++r)
    most = std::max(most, planner::extended_arena(planner::live_places(one.roles[r].program("step")),
                                                  planner::live_places(two.roles[r].program("step")), further));
  return most;
}

}  // namespace

planner::Scored PlanSearch::simulated(const OnCluster& on, const simulator::Simulation& s) const {
  planner::Scored scored;
  scored.seconds = s.step_seconds;
  scored.bytes = on.compiled.arena_bytes();
  scored.fits = s.fits && fits(scored.bytes);
  scored.mean = s.mean;
  for (const Role& role : on.compiled.roles)
    scored.work += 2 * role.module.graph("micro").nodes.size() + role.program("step").instructions.size() / 4;
  for (std::size_t a = 0; a < s.cast.actors.size(); ++a)
    scored.price += s.cast.ranks[a] * on.cluster.device_of(s.cast.rank[a]).price;
  return scored;
}

PlanSearch::Timed PlanSearch::timed(const Config& config, const std::vector<std::int64_t>& micro_batches,
                                    double further) const {
  OnCluster on = compile_on(config, registry_, request_.cluster, {.step_alone = true, .resolved = true});
  const planner::Scored one = simulated(on, simulator::simulate(on.compiled, on.cluster));
  if (micro_batches.size() == 1) return {one, std::move(on)};
  on.planned.graphs.micro_batches = static_cast<int>(micro_batches[1]);
  on.compiled = compiler::with_micro_batches(std::move(on.compiled), on.planned.graphs);
  planner::Scored two = simulated(on, simulator::simulate(on.compiled, on.cluster));
  extend(two, one, further);
  two.bytes = std::max(one.bytes, two.bytes);
  return {two, std::move(on)};
}

std::vector<std::int64_t> PlanSearch::folds(const planner::Candidate& c) const {
  using Kind = planner::RematPolicy::Kind;
  const Kind remat = c.layer.remat;
  if (folded_ == 0 || (c.pp > 1 && c.stages.empty())) return {};
  if (remat != Kind::none && remat != Kind::selective && remat != Kind::full) return {};
  const std::int64_t least = c.pp > 1 ? *std::min_element(c.stages.begin(), c.stages.end()) : problem_.space.layers;
  // The outermost layers are not as the others.
  const std::int64_t kept = c.pp > 1 ? 2 : 3;
  if (least < 2 * kept + 4) return {};
  // Two layers apart, where collectives of layers that share a bucket alternate.
  return {least - kept, least - kept - (c.pp > 1 ? 1 : 2)};
}

// Every further round of micro-batches adds the same to a step once the pipeline is full, and every further layer
// that is like the others. So of many, two numbers of each are compiled: of micro-batches those that leave the same
// rest in the last round, and hold as many at once.
planner::Scored PlanSearch::score(const planner::Candidate& c) const {
  using Kind = program::PipelineName::Kind;
  const std::int64_t all = config_.train.batch / c.dp / c.layer.micro_batch;
  const std::int64_t round = c.pp;
  const Kind kind = c.pipeline.kind;
  const bool grows =
      c.pp > 1 && (kind == Kind::gpipe || kind == Kind::file || kind == Kind::pipedream || kind == Kind::pipedream_2bw);
  const bool interleaved = c.pp > 1 && kind == Kind::interleaved;
  const std::int64_t first = interleaved ? 2 * round + all % round : std::max<std::int64_t>(2, round);
  const std::int64_t second = first + (interleaved ? round : 1);
  std::vector<std::int64_t> micro_batches = {all};
  double further = 0;
  if (!grows && all > 2 * second) {
    micro_batches = {first, second};
    further = static_cast<double>(all - second) / static_cast<double>(second - first);
  }
  const auto with_fewer = [&](std::int64_t layers) {
    planner::Candidate fewer = c;
    for (std::int64_t& part : fewer.stages) part -= layers;
    Config config = under(fewer);
    config.model.layers -= layers * c.parts();
    config.train.batch = micro_batches.front() * c.dp * c.layer.micro_batch;
    if (layers > 0) config.memory.limit = {};
    return timed(config, micro_batches, further);
  };
  planner::Scored scored;
  try {
    const std::vector<std::int64_t> fewer = folds(c);
    if (fewer.empty()) {
      scored = with_fewer(0).scored;
    } else {
      std::future<Timed> shorter = std::async(std::launch::async, [&] { return with_fewer(fewer[0]); });
      Timed two = with_fewer(fewer[1]);
      Timed one = shorter.get();
      // Further layers to the pair's difference, for its longer model.
      std::int64_t left = fewer[1];
      const std::int64_t apart = fewer[0] - fewer[1];
      const auto further_pairs = [&] { return static_cast<double>(left) / static_cast<double>(apart); };
      double bytes = extended_bytes(one.on.compiled, two.on.compiled, further_pairs());
      // In models of very few layers all of them may be gathered ahead, say, which more layers do not go on with: where
      // the places grow by more than the peak, longer models follow until two pairs agree.
      constexpr int kPairs = 3;
      constexpr double kAgree = 0.01;
      for (int pair = 0; pair < kPairs && left > apart; ++pair) {
        const auto peaks = [](const Timed& t) { return static_cast<double>(t.scored.bytes); };
        if (bytes <= (1 + kAgree) * (peaks(two) + further_pairs() * (peaks(two) - peaks(one)))) break;
        left -= apart;
        one = std::exchange(two, with_fewer(left));
        const double before = std::exchange(bytes, extended_bytes(one.on.compiled, two.on.compiled, further_pairs()));
        if (std::abs(before / bytes - 1) <= kAgree) break;
      }
      scored = two.scored;
      extend(scored, one.scored, further_pairs());
      scored.bytes = std::max(scored.bytes, static_cast<std::size_t>(bytes));
      // What may just fit is not passed over: the winner is compiled in full.
      constexpr double kDoubt = 1.02;
      scored.fits = static_cast<double>(scored.bytes) <= kDoubt * problem_.limit;
    }
    scored.exact = fewer.empty() && micro_batches.size() == 1;
  } catch (const Error& e) {
    scored.refused = e.message();
  }
  return scored;
}

}  // namespace trireme::train
