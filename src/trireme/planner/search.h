#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/stopwatch.h"
#include "trireme/planner/candidate.h"
#include "trireme/planner/estimate.h"
#include "trireme/simulator/simulate.h"

namespace trireme::planner {

enum class Objective : std::uint8_t { time, cost, memory };
enum class Method : std::uint8_t { levels, mcmc };

// A candidate that was compiled and simulated.
struct Scored {
  Candidate candidate;
  double estimated = 0;   // seconds, by formula
  double seconds = 0;     // of a step, simulated
  std::size_t bytes = 0;  // of the fullest rank, by the memory plan
  double price = 0;       // dollars per hour of its ranks
  bool fits = true;
  std::size_t work = 0;      // nodes that were compiled for it: what scoring it costs
  bool exact = true;         // compiled in full; else from shorter models and fewer micro-batches of the same plan
  std::string refused = {};  // why it cannot be compiled; empty: it can
  simulator::TimeByKind mean = {};

  bool feasible() const { return refused.empty() && fits; }
  double value(Objective objective) const;
};

struct Problem {
  Space space;
  const cluster::Cluster* cluster = nullptr;
  double limit = 0;                   // bytes of a rank
  bool overlap = true;                // collectives with computation
  std::optional<Candidate> own = {};  // the configuration's own, which is scored too
  // Micro-batches of more rows cost in proportion: only up to so many are their layers' costs worked out.
  std::int64_t proportional_from = 4;
  // The layers' costs; nothing: the model cannot be sharded so. Called by several threads at once, and so is `score`.
  std::function<std::optional<Profile>(const LayerKey&)> profile;
  // Whether stages may also be cut within a layer: worth scoring where that is quickly done.
  bool finer_stages = true;
  // Compiles and simulates.
  std::function<Scored(const Candidate&)> score;
};

struct SearchOptions {
  Objective objective = Objective::time;
  Method method = Method::levels;
  // That are compiled and simulated, apart from the well-known plans; more where that is quickly done.
  int finalists = 5;
  std::uint64_t seed = 1;
  int moves = 20'000;               // of the Markov chain
  std::function<bool()> stop = {};  // asked between candidates: keep the best so far
  std::function<void(const std::string& phase, std::size_t done, std::size_t total, const Scored* best)> on_progress =
      {};
};

struct SearchResult {
  std::vector<Scored> best;    // feasible, the best first
  std::vector<Scored> others;  // scored, and too large or refused
  std::size_t candidates = 0;
  std::size_t too_large = 0;  // by the bound of their memory
  std::size_t estimated = 0;
  double bound = 0;  // seconds of the kernels alone, at their best and shared evenly by all devices
  bool stopped = false;
  Spent searched = {};   // by the search,
  Spent confirmed = {};  // and by compiling its winner in full
  // Of all candidates, the one whose bound of memory is the least: what to say where nothing fits.
  std::optional<Candidate> smallest = {};
  double smallest_bytes = 0;
};

// Two levels: every candidate is estimated from the costs of its layers (estimate.h), and those that cannot fit are
// left out. Then the most promising is compiled and simulated, which also says by how much the estimates of its kind
// are off, and so on until no other promises more; the well-known plans are always among them. Neighbours of the winner
// follow. With Method::mcmc a Markov chain walks the same space by its estimates instead of visiting all of it.
// The same problem, options and seed give the same result.
SearchResult search(const Problem& problem, const SearchOptions& options);

}  // namespace trireme::planner
