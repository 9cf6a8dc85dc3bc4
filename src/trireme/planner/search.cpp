#include "trireme/planner/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "trireme/core/rng.h"
#include "trireme/planner/at_once.h"
#include "trireme/planner/layer_costs.h"

namespace trireme::planner {
namespace {

// Candidates that are worked on at once. A constant: what is found does not depend on the machine's cores.
constexpr std::size_t kAtOnce = 2;

// As many plans are simulated as have so many nodes together, but not more than so many.
constexpr std::size_t kWork = 60'000;
constexpr std::size_t kMaxFinalists = 40;

// A candidate that promises so much less than the best is not worth compiling: by so much an estimate is off that was
// corrected by those of its kind.
constexpr double kDoubt = 1.15;

// By how much the bound of a candidate's memory may be wrong: what is held by a schedule is a formula.
constexpr double kSlack = 1.05;

struct Ranked {
  Candidate candidate;
  Estimate estimate;
};

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        costs_(problem),
        own_{Estimator(*problem.cluster, problem.space.batch, problem.limit, problem.overlap)} {}

  SearchResult run() {
    std::vector<Candidate> all = enumerate(problem_.space);
    result_.candidates = all.size();
    if (problem_.own) all.insert(all.begin(), *problem_.own);
    if (options_.method == Method::mcmc)
      walk(all);
    else
      visit(all);
    order();
    score_finalists();
    improve();
    rank();
    result_.bound = costs_.bound();
    return std::move(result_);
  }

 private:
  bool stopped() {
    if (!result_.stopped && options_.stop && options_.stop()) result_.stopped = true;
    return result_.stopped;
  }

  void report(const char* phase, std::size_t done, std::size_t total) {
    if (options_.on_progress) options_.on_progress(phase, done, total, best_scored());
  }

  const Scored* best_scored() const {
    const Scored* best = nullptr;
    for (const Scored& s : scored_)
      if (s.feasible() && (best == nullptr || s.value(options_.objective) < best->value(options_.objective))) best = &s;
    return best;
  }

  // After a stop the rest stay unknown.
  void learn(const std::set<LayerKey>& keys) {
    costs_.learn(keys, kAtOnce, [&](std::size_t done, std::size_t total) {
      report("costs of layers", done, total);
      return !stopped();
    });
  }

  // The costs of a single row: by them the memory of many is out of the question.
  const Profile* row_of(const Candidate& candidate) {
    return problem_.limit > 0 ? costs_.of_row(candidate.layer) : nullptr;
  }
  // By these costs. Nothing: they are unknown.
  static std::optional<Estimate> grown(Estimator& estimator, const Candidate& candidate, const Profile* one) {
    if (one == nullptr) return std::nullopt;
    Profile more = *one;
    for (LayerCost& layer : more.layers) layer.saved *= static_cast<double>(candidate.layer.micro_batch);
    return estimator.of(candidate, more);
  }
  bool is_hopeless(const Candidate& candidate, const std::optional<Estimate>& estimate) {
    if (!estimate) return false;
    note_smallest(candidate, *estimate);
    return estimate->least_bytes > kSlack * problem_.limit;
  }
  bool is_hopeless(const Candidate& candidate) {
    return is_hopeless(candidate, grown(own_.estimator, candidate, row_of(candidate)));
  }

  void note_smallest(const Candidate& candidate, const Estimate& estimate) {
    if (result_.smallest && estimate.least_bytes >= result_.smallest_bytes) return;
    result_.smallest = candidate;
    result_.smallest_bytes = estimate.least_bytes;
  }

  // What a thread that estimates has for itself.
  struct Desk {
    Estimator estimator;
    std::optional<std::pair<Candidate, bool>> plain = {};  // the last that was looked at, and whether it fits
  };
  Desk desk() const { return {Estimator(*problem_.cluster, problem_.space.batch, problem_.limit, problem_.overlap)}; }

  // What is offloaded costs time: only where the plan does not fit without. (It may be asked for to save memory.)
  bool is_needless(Desk& desk, const Candidate& candidate, const Profile& own) const {
    if (!candidate.offload.any() || options_.objective == Objective::memory) return false;
    const auto fits = [&](Offload offload) {
      Candidate other = candidate;
      other.offload = offload;
      return desk.estimator.of(other, own).bytes <= problem_.limit;
    };
    Candidate plain = candidate;
    plain.offload = {};
    // The same plan with other things offloaded follows at once.
    if (!desk.plain || desk.plain->first != plain) desk.plain.emplace(plain, fits({}));
    if (desk.plain->second) return true;
    return candidate.offload.optimizer && candidate.offload.activations &&
           (fits({.optimizer = true}) || fits({.activations = true}));
  }

  // Nothing: it cannot be.
  std::optional<Estimate> estimated(Desk& desk, const Candidate& candidate, const Profile* own) const {
    if (own == nullptr || candidate.parts() > std::ssize(own->layers)) return std::nullopt;
    if (is_needless(desk, candidate, *own)) return std::nullopt;
    return desk.estimator.of(candidate, *own);
  }
  // Nothing: it cannot fit.
  std::optional<Ranked> ranked(Candidate candidate, Estimate estimate) {
    note_smallest(candidate, estimate);
    if (problem_.limit > 0 && estimate.least_bytes > kSlack * problem_.limit) {
      ++result_.too_large;
      return std::nullopt;
    }
    ++result_.estimated;
    if (candidate.pp > 1 && candidate.stages.empty()) candidate.stages = estimate.stages;
    return Ranked{std::move(candidate), std::move(estimate)};
  }
  std::optional<Ranked> estimated(const Candidate& candidate) {
    if (!costs_.worthwhile(candidate.layer)) return std::nullopt;
    std::optional<Estimate> estimate = estimated(own_, candidate, costs_.of(candidate.layer));
    return estimate ? ranked(candidate, std::move(*estimate)) : std::nullopt;
  }

  // estimate(desk, i) of all candidates, by several threads: in pieces, since neighbours have much in common.
  template <class Estimates>
  std::vector<std::optional<Estimate>> each_estimate(std::size_t count, Estimates&& estimate) {
    constexpr std::size_t kPiece = 1024;
    std::vector<std::optional<Estimate>> all(count);
    each_at_once((count + kPiece - 1) / kPiece, kAtOnce, [&](std::size_t piece) {
      Desk own = desk();
      for (std::size_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) all[i] = estimate(own, i);
    });
    return all;
  }

  void visit(const std::vector<Candidate>& all) {
    std::set<LayerKey> rows, wanted;
    for (const Candidate& c : all)
      if (c.layer.sharding > 0)
        for (const LayerKey& key : {LayerCosts::preset_of(c.layer), LayerCosts::chosen_of(c.layer)}) wanted.insert(key);
    learn(std::exchange(wanted, {}));
    if (stopped()) return;
    for (const Candidate& c : all) {
      if (!costs_.worthwhile(c.layer)) continue;
      LayerKey row = c.layer;
      row.micro_batch = 1;
      rows.insert(row);
    }
    learn(rows);
    if (stopped()) return;
    std::vector<bool> worth(all.size(), false);
    std::vector<const Profile*> costs(all.size(), nullptr);
    for (std::size_t i = 0; i < all.size(); ++i) {
      worth[i] = costs_.worthwhile(all[i].layer);
      if (worth[i]) costs[i] = row_of(all[i]);
    }
    report("estimating", 0, 2);
    const std::vector<std::optional<Estimate>> least =
        each_estimate(all.size(), [&](Desk& desk, std::size_t i) { return grown(desk.estimator, all[i], costs[i]); });
    std::vector<bool> hopeless(all.size(), false);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!worth[i]) continue;
      hopeless[i] = is_hopeless(all[i], least[i]);
      if (!hopeless[i])
        for (const LayerKey& key : costs_.sources(all[i].layer)) wanted.insert(key);
    }
    learn(wanted);
    if (stopped()) return;
    for (std::size_t i = 0; i < all.size(); ++i)
      costs[i] = worth[i] && !hopeless[i] ? costs_.of(all[i].layer) : nullptr;
    report("estimating", 1, 2);
    std::vector<std::optional<Estimate>> estimates =
        each_estimate(all.size(), [&](Desk& desk, std::size_t i) { return estimated(desk, all[i], costs[i]); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (hopeless[i]) ++result_.too_large;
      if (!estimates[i]) continue;
      if (std::optional<Ranked> one = ranked(all[i], std::move(*estimates[i]))) ranked_.push_back(std::move(*one));
    }
  }

  // A Markov chain by Metropolis' rule over the logarithm of the estimates, cooling: a move goes to a candidate that
  // differs in as little as there is, or now and then to any.
  void walk(const std::vector<Candidate>& all) {
    if (all.empty()) return;
    SplitMix random(options_.seed);
    const auto any = [&](std::size_t count) {
      return std::min(count - 1, static_cast<std::size_t>(random.unit() * static_cast<double>(count)));
    };
    std::map<std::size_t, std::optional<double>> known;
    const auto cost = [&](std::size_t i) {
      const auto [at, fresh] = known.try_emplace(i);
      if (fresh && costs_.worthwhile(all[i].layer) && !is_hopeless(all[i]))
        if (std::optional<Ranked> ranked = estimated(all[i])) {
          at->second = std::log(ranked->estimate.seconds);
          ranked_.push_back(std::move(*ranked));
        }
      return at->second;
    };
    std::optional<std::size_t> at;
    for (int move = 0; move < options_.moves && !stopped(); ++move) {
      if (move % 256 == 0)
        report("Markov chain", static_cast<std::size_t>(move), static_cast<std::size_t>(options_.moves));
      constexpr double kJump = 0.2;
      std::size_t to = any(all.size());
      // Of a few, the one with the most in common.
      if (at && random.unit() > kJump)
        for (int tries = 0; tries < 32; ++tries)
          if (const std::size_t other = any(all.size());
              other != *at && difference(all[other], all[*at]) < difference(all[to], all[*at]))
            to = other;
      const auto there = cost(to);
      if (!there) continue;
      const double heat = 0.3 * (1 - static_cast<double>(move) / options_.moves) + 1e-3;
      const auto here = at ? cost(*at) : std::nullopt;
      if (!here || *there < *here || random.unit() < std::exp((*here - *there) / heat)) at = to;
    }
    for (std::size_t i = 0; i < all.size() && !stopped(); ++i)
      if (is_well_known(all[i], problem_.space)) cost(i);
  }

  static int difference(const Candidate& a, const Candidate& b) {
    return (a.pp != b.pp) + (a.dp != b.dp) + (a.zero != b.zero) + (a.pipeline != b.pipeline) +
           (a.layer.tp != b.layer.tp) + (a.layer.sequence != b.layer.sequence) +
           (a.layer.micro_batch != b.layer.micro_batch) + (a.layer.remat != b.layer.remat) +
           (a.layer.sharding != b.layer.sharding) + (a.layer.h != b.layer.h) + (a.layer.w != b.layer.w) +
           (a.layer.precision != b.layer.precision) + (a.offload != b.offload) + (a.compress != b.compress);
  }

  double value(const Ranked& r) const {
    switch (options_.objective) {
      case Objective::time: return r.estimate.seconds;
      case Objective::cost: return r.estimate.seconds * r.candidate.ranks();
      case Objective::memory: break;
    }
    return r.estimate.bytes;
  }

  void order() {
    std::stable_sort(ranked_.begin(), ranked_.end(),
                     [&](const Ranked& a, const Ranked& b) { return value(a) < value(b); });
  }

  bool known(const Candidate& c) const {
    return std::any_of(scored_.begin(), scored_.end(), [&](const Scored& s) { return s.candidate == c; });
  }

  // Whether its memory is worth compiling for: what was scored says by how much the estimates are off.
  bool may_fit(const Ranked& r) const {
    const auto known_ratio = ratios_.find(kind_of(r.candidate));
    const double ratio = known_ratio == ratios_.end() ? std::min(1.0, usual_ratio_) : known_ratio->second;
    return problem_.limit <= 0 || r.estimate.bytes * ratio <= problem_.limit;
  }

  // Plans that are estimated equally well.
  using Kind = std::tuple<bool, bool, bool, bool, int, RematPolicy::Kind, program::PipelineName::Kind, bool, bool>;
  static Kind kind_of(const Candidate& c) {
    return {c.pp > 1,
            c.dp > 1,
            c.layer.tp > 1,
            c.layer.h * c.layer.w > 1,
            c.zero,
            c.layer.remat,
            c.pp > 1 ? c.pipeline.kind : program::PipelineName{}.kind,
            c.offload.optimizer,
            c.offload.activations};
  }

  // What was simulated, in the unit of the estimates.
  double as_estimated(const Scored& s) const {
    switch (options_.objective) {
      case Objective::time: return s.seconds;
      case Objective::cost: return s.seconds * s.candidate.ranks();
      case Objective::memory: break;
    }
    return static_cast<double>(s.bytes);
  }

  // Its estimate, corrected by the best that was simulated of its kind.
  double promise(const Ranked& r) const {
    if (options_.objective == Objective::memory) return value(r);
    if (const auto found = off_.find(kind_of(r.candidate)); found != off_.end()) return value(r) * found->second;
    const auto similar = off_likewise_.find(family_of(r.candidate));
    return value(r) * (similar == off_likewise_.end() ? 1 : similar->second);
  }
  // Kinds whose estimates are off for the same reasons. Replicas may sum batch statistics in every layer, which no
  // estimate has.
  using Family = std::tuple<bool, bool, bool, bool, bool>;
  static Family family_of(const Candidate& c) {
    return {c.pp > 1, c.dp > 1, c.zero > 1, c.offload.optimizer, c.offload.activations};
  }
  template <class Map, class Key>
  static void keep_least(Map& map, const Key& key, double value) {
    const auto [at, fresh] = map.try_emplace(key, value);
    if (!fresh) at->second = std::min(at->second, value);
  }

  // Compiles and simulates several at once. Gives how many of them will do.
  std::size_t score(const std::vector<Ranked>& all) {
    std::vector<Scored> found(all.size());
    each_at_once(all.size(), kAtOnce, [&](std::size_t i) { found[i] = problem_.score(all[i].candidate); });
    std::size_t feasible = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      Scored s = std::move(found[i]);
      s.candidate = all[i].candidate;
      s.estimated = all[i].estimate.seconds;
      if (s.refused.empty()) {
        const double ratio = static_cast<double>(s.bytes) / all[i].estimate.bytes;
        keep_least(ratios_, kind_of(s.candidate), ratio);
        usual_ratio_ = std::min(usual_ratio_, ratio);
        keep_least(off_, kind_of(s.candidate), s.seconds / s.estimated);
        keep_least(off_likewise_, family_of(s.candidate), s.seconds / s.estimated);
      }
      feasible += s.feasible() ? 1 : 0;
      spent_ += s.work;
      scored_.push_back(std::move(s));
    }
    return feasible;
  }

  bool is_new(const Ranked& r) const { return !known(r.candidate) && may_fit(r); }

  std::size_t count_feasible() const {
    return static_cast<std::size_t>(
        std::count_if(scored_.begin(), scored_.end(), [](const Scored& s) { return s.feasible(); }));
  }

  // The most promising, again and again, until none is left that may be better.
  void score_promising() {
    const auto asked = static_cast<std::size_t>(options_.finalists);
    while (!stopped()) {
      const std::size_t good = count_feasible();
      const bool enough = good >= asked;
      if (scored_.size() >= std::max(kMaxFinalists, 4 * asked) || (enough && spent_ >= kWork)) return;
      std::vector<const Ranked*> open;
      for (const Ranked& r : ranked_)
        if (is_new(r)) open.push_back(&r);
      const std::size_t count = std::min(kAtOnce, open.size());
      std::partial_sort(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count), open.end(),
                        [&](const Ranked* a, const Ranked* b) { return promise(*a) < promise(*b); });
      std::vector<Ranked> next;
      const Scored* best = best_scored();
      for (std::size_t i = 0; i < count; ++i)
        if (!enough || best == nullptr || promise(*open[i]) < kDoubt * as_estimated(*best)) next.push_back(*open[i]);
      if (next.empty()) return;
      report("simulating", std::min(good, asked), asked);
      score(next);
    }
  }

  // Of `from`, in order, until so many will do; gives up after `most`.
  void score_some(const std::vector<const Ranked*>& from, std::size_t enough, std::size_t most) {
    std::size_t feasible = 0;
    std::size_t tried = 0;
    for (std::size_t i = 0; i < from.size() && feasible < enough && tried < most && !stopped();) {
      std::vector<Ranked> next;
      for (; i < from.size() && next.size() < std::min(kAtOnce, enough - feasible); ++i)
        if (is_new(*from[i])) next.push_back(*from[i]);
      if (next.empty()) break;
      report("simulating", feasible, enough);
      tried += next.size();
      feasible += score(next);
    }
  }

  void score_finalists() {
    score_promising();
    // By the estimates nothing fits: the smallest are compiled, which is exact.
    if (count_feasible() == 0 && !stopped()) {
      std::vector<const Ranked*> all;
      for (const Ranked& r : ranked_) all.push_back(&r);
      std::stable_sort(all.begin(), all.end(),
                       [](const Ranked* a, const Ranked* b) { return a->estimate.bytes < b->estimate.bytes; });
      ratios_.clear();
      usual_ratio_ = 0;
      score_some(all, 1, 4);
    }
    // The best of each well-known kind, and the configuration's own.
    constexpr int kKinds = 3;
    for (int kind = 0; kind < kKinds; ++kind) {
      std::vector<const Ranked*> own;
      bool done = false;
      for (const Ranked& r : ranked_) {
        const Candidate& c = r.candidate;
        const int its = c.pp == 1 && c.layer.tp == 1 ? (c.zero == 0 ? 0 : 1) : 2;
        if (its != kind || !is_well_known(c, problem_.space)) continue;
        if (own.empty() && known(c)) done = true;
        own.push_back(&r);
      }
      if (!done) score_some(own, 1, 3);
    }
    if (problem_.own && !known(*problem_.own) && !stopped())
      for (const Ranked& r : ranked_) {
        Candidate same = r.candidate;
        same.stages = problem_.own->stages;
        if (same != *problem_.own) continue;
        score({{same, r.estimate}});
        break;
      }
    report("simulating", 1, 1);
  }

  // Estimates are off by more than neighbours differ: what is one choice away from the winner is simulated too, while
  // that helps.
  void improve() {
    // Of large models only the nearest: each takes long.
    std::size_t left = spent_ >= kWork ? 2 : kMaxFinalists / 2;
    for (bool better = true; better && left > 0 && !stopped();) {
      const Scored* best = best_scored();
      if (best == nullptr) return;
      const Candidate center = best->candidate;
      const double before = best->value(options_.objective);
      const double off = best->seconds / best->estimated;
      std::vector<const Ranked*> near;
      for (const Ranked& r : ranked_)
        if (difference(r.candidate, center) == 1 && is_new(r) &&
            (options_.objective == Objective::memory || r.estimate.seconds * off < 1.15 * best->seconds))
          near.push_back(&r);
      const std::size_t scored = scored_.size();
      score_some(near, std::min<std::size_t>(left, 4), left);
      left -= std::min(left, scored_.size() - scored);
      better = best_scored()->value(options_.objective) < before;
    }
    cut_finer();
  }

  // Stages may also be cut within a layer, as the compiler balances them.
  void cut_finer() {
    const Scored* best = best_scored();
    if (!problem_.finer_stages || best == nullptr || best->candidate.pp == 1 || !problem_.space.stages.empty() ||
        stopped())
      return;
    Ranked finer{best->candidate, {}};
    finer.candidate.stages.clear();
    finer.estimate.seconds = best->estimated;
    finer.estimate.bytes = static_cast<double>(best->bytes);
    if (!known(finer.candidate)) score({finer});
  }

  void rank() {
    for (Scored& s : scored_) (s.feasible() ? result_.best : result_.others).push_back(std::move(s));
    std::stable_sort(result_.best.begin(), result_.best.end(), [&](const Scored& a, const Scored& b) {
      return a.value(options_.objective) < b.value(options_.objective);
    });
  }

  const Problem& problem_;
  const SearchOptions& options_;
  LayerCosts costs_;
  std::vector<Ranked> ranked_;
  std::vector<Scored> scored_;
  // Bytes of the memory plan over those estimated, the least that was seen: by kind of plan, and of all.
  std::map<Kind, double> ratios_;
  double usual_ratio_ = 1;
  std::map<Kind, double> off_;  // seconds simulated over those estimated, likewise
  std::map<Family, double> off_likewise_;
  std::size_t spent_ = 0;  // work of all that was scored
  Desk own_;
  SearchResult result_;
};

}  // namespace

double Scored::value(Objective objective) const {
  switch (objective) {
    case Objective::time: return seconds;
    case Objective::cost: return seconds * (price > 0 ? price : candidate.ranks());
    case Objective::memory: break;
  }
  return static_cast<double>(bytes);
}

SearchResult search(const Problem& problem, const SearchOptions& options) { return Search(problem, options).run(); }

}  // namespace trireme::planner
