#include "trireme/planner/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "trireme/core/rng.h"

namespace trireme::planner {
namespace {

struct Ranked {
  Candidate candidate;
  Estimate estimate;
};

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options)
      : problem_(problem),
        options_(options),
        estimator_(*problem.cluster, problem.space.batch, problem.limit, problem.overlap) {}

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

  const Profile* profile(const LayerKey& key) {
    const auto [at, fresh] = profiles_.try_emplace(key);
    if (fresh) {
      at->second = problem_.profile(key);
      if (at->second) bound(key, *at->second);
    }
    return at->second ? &*at->second : nullptr;
  }

  // What the kernels take, without anything between ranks, if all ranks could share the rows evenly.
  void bound(const LayerKey& key, const Profile& profile) {
    const LayerCost all = profile.total();
    const double kernels = all.forward + all.backward + all.weight_gradient - all.communication;
    const double rows = static_cast<double>(problem_.space.batch) / static_cast<double>(key.micro_batch);
    const double seconds = kernels * rows * key.tp / problem_.space.ranks;
    if (result_.bound == 0 || seconds < result_.bound) result_.bound = seconds;
  }

  // Nothing: it cannot be, or not fit.
  std::optional<Ranked> estimated(Candidate candidate) {
    const Profile* own = profile(candidate.layer);
    if (own == nullptr || candidate.parts() > std::ssize(own->layers)) return std::nullopt;
    Estimate estimate = estimator_.of(candidate, *own);
    if (!result_.smallest || estimate.least_bytes < result_.smallest_bytes) {
      result_.smallest = candidate;
      result_.smallest_bytes = estimate.least_bytes;
    }
    if (problem_.limit > 0 && estimate.least_bytes > problem_.limit) {
      ++result_.too_large;
      return std::nullopt;
    }
    ++result_.estimated;
    if (candidate.pp > 1 && candidate.stages.empty()) candidate.stages = estimate.stages;
    return Ranked{candidate, std::move(estimate)};
  }

  void visit(const std::vector<Candidate>& all) {
    std::set<LayerKey> keys;
    for (const Candidate& c : all) keys.insert(c.layer);
    std::size_t done = 0;
    for (const LayerKey& key : keys) {
      if (stopped()) return;
      report("costs of layers", done++, keys.size());
      profile(key);
    }
    report("costs of layers", keys.size(), keys.size());
    for (const Candidate& c : all)
      if (std::optional<Ranked> ranked = estimated(c)) ranked_.push_back(std::move(*ranked));
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
      if (fresh)
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
  }

  static int difference(const Candidate& a, const Candidate& b) {
    return (a.pp != b.pp) + (a.dp != b.dp) + (a.zero != b.zero) + (a.pipeline != b.pipeline) +
           (a.layer.tp != b.layer.tp) + (a.layer.sequence != b.layer.sequence) +
           (a.layer.micro_batch != b.layer.micro_batch) + (a.layer.remat != b.layer.remat) +
           (a.layer.sharding != b.layer.sharding);
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
  bool may_fit(const Estimate& estimate) const {
    return problem_.limit <= 0 || estimate.bytes * least_ratio_ <= problem_.limit;
  }

  const Scored& score(const Ranked& ranked) {
    Scored s = problem_.score(ranked.candidate);
    s.candidate = ranked.candidate;
    s.estimated = ranked.estimate.seconds;
    if (s.refused.empty()) {
      const double ratio = static_cast<double>(s.bytes) / ranked.estimate.bytes;
      least_ratio_ = any_scored_ ? std::min(least_ratio_, ratio) : std::min(1.0, ratio);
      any_scored_ = true;
    }
    scored_.push_back(std::move(s));
    return scored_.back();
  }

  void score_finalists() {
    const auto total = static_cast<std::size_t>(options_.finalists);
    std::size_t feasible = 0;
    std::size_t tried = 0;
    const auto take = [&](const Ranked& r) {
      if (known(r.candidate) || !may_fit(r.estimate)) return false;
      report("simulating", std::min(feasible, total), total);
      ++tried;
      const bool good = score(r).feasible();
      feasible += good ? 1 : 0;
      return good;
    };
    const std::size_t most = 4 * total;
    for (const Ranked& r : ranked_) {
      if (feasible >= total || tried >= most || stopped()) break;
      take(r);
    }
    // The best of each well-known kind, and the configuration's own.
    if (problem_.own)
      for (const Ranked& r : ranked_)
        if (r.candidate.stages == problem_.own->stages || problem_.own->stages.empty()) {
          Candidate same = r.candidate;
          same.stages = problem_.own->stages;
          if (same == *problem_.own && !stopped()) {
            take({same, r.estimate});
            break;
          }
        }
    for (int kind = 0; kind < 3; ++kind) {
      int tries = 0;
      for (const Ranked& r : ranked_) {
        if (stopped() || tries >= 3) break;
        const Candidate& c = r.candidate;
        const int own = c.pp == 1 && c.layer.tp == 1 ? (c.zero == 0 ? 0 : 1) : 2;
        if (own != kind || !is_well_known(c, problem_.space)) continue;
        if (known(c)) break;
        if (!may_fit(r.estimate)) continue;
        ++tries;
        if (take(r)) break;
      }
    }
    report("simulating", total, total);
  }

  // Estimates are off by more than neighbours differ: what is one choice away from the winner is simulated too, while
  // that helps.
  void improve() {
    int left = options_.finalists;
    for (bool better = true; better && left > 0 && !stopped();) {
      better = false;
      const Scored* best = best_scored();
      if (best == nullptr) return;
      const Candidate center = best->candidate;
      const double value_before = best->value(options_.objective);
      const double off = best->seconds / best->estimated;
      for (const Ranked& r : ranked_) {
        if (left <= 0 || stopped()) break;
        if (difference(r.candidate, center) != 1 || known(r.candidate) || !may_fit(r.estimate)) continue;
        if (options_.objective != Objective::memory && r.estimate.seconds * off > 1.15 * best_scored()->seconds)
          continue;
        --left;
        report("simulating neighbours", static_cast<std::size_t>(options_.finalists - left),
               static_cast<std::size_t>(options_.finalists));
        better = better || (score(r).feasible() && scored_.back().value(options_.objective) < value_before);
      }
    }
  }

  void rank() {
    for (Scored& s : scored_) (s.feasible() ? result_.best : result_.others).push_back(std::move(s));
    std::stable_sort(result_.best.begin(), result_.best.end(), [&](const Scored& a, const Scored& b) {
      return a.value(options_.objective) < b.value(options_.objective);
    });
  }

  const Problem& problem_;
  const SearchOptions& options_;
  Estimator estimator_;
  std::map<LayerKey, std::optional<Profile>> profiles_;
  std::vector<Ranked> ranked_;
  std::vector<Scored> scored_;
  double least_ratio_ = 1;
  bool any_scored_ = false;
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
