#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/search.h"
#include "trireme/train/on_cluster.h"

namespace trireme::train {

struct PlanRequest {
  cluster::Cluster cluster;
  int ranks = 1;
  bool fewer_ranks = false;  // also halves of them
  // Keys that the search leaves as the configuration has them, such as those of the command line.
  std::vector<std::string> fixed = {};
  // What may change the numbers that are trained, and is therefore searched only when asked for.
  bool precision = false;
  bool compress = false;
  // Whether the winner is compiled in full, and others in its place should it not fit.
  bool confirm = true;
  planner::SearchOptions search = {};
  LogSink log = {};
  std::function<void(const char* phase)> on_phase = {};
};

// A problem of the planner, as a configuration and a cluster pose it.
class PlanSearch {
 public:
  // Refuses what no plan can be searched for: more ranks than the cluster's overrides allow, ranks beyond a mesh.
  // `registry` must outlive it.
  PlanSearch(Config config, const Registry& registry, PlanRequest request);

  // A candidate, compiled and simulated in full.
  struct Winner {
    planner::Candidate candidate;
    OnCluster on;
    simulator::Simulation simulation;
  };

  // Refuses a limit that nothing meets, with the nearest that works. `winner` gets the best, where that is confirmed.
  planner::SearchResult run(std::optional<Winner>* winner = nullptr) const;
  // The configuration under a candidate.
  Config under(const planner::Candidate& candidate) const;
  // All programs of it.
  OnCluster compiled(const planner::Candidate& candidate) const;
  const planner::Problem& problem() const { return problem_; }
  const Config& config() const { return config_; }

 private:
  bool is_fixed(const std::string& key) const;
  void find_space();
  void find_own();
  void check_folds();
  // The model under a key, on a mesh of tp alone.
  Config layer_config(const planner::LayerKey& key) const;
  std::optional<planner::Profile> profile(const planner::LayerKey& key) const;
  // What the integer program says for so many ranks; empty: nothing.
  const std::vector<passes::Annotation>& shardings(int tp) const;
  planner::Scored score(const planner::Candidate& candidate) const;
  // Of a configuration with the first of these numbers of micro-batches; with two, what they come to `further` on.
  struct Timed {
    planner::Scored scored;
    OnCluster on;
  };
  Timed timed(const Config& config, const std::vector<std::int64_t>& micro_batches, double further) const;
  planner::Scored simulated(const OnCluster& on, const simulator::Simulation& simulation) const;
  // Layers that every part of a plan can do without, in two models that stand for the whole; none: it is too short.
  std::vector<std::int64_t> folds(const planner::Candidate& candidate) const;
  bool fits(std::size_t bytes) const { return static_cast<double>(bytes) <= problem_.limit; }
  void confirm(planner::SearchResult& result, std::optional<Winner>& winner) const;
  [[noreturn]] void refuse_all(const planner::SearchResult& result) const;

  Config config_;  // its model's shape resolved
  const Registry& registry_;
  PlanRequest request_;
  planner::Problem problem_;
  mutable std::mutex mutex_;        // of what follows
  mutable std::string unprofiled_;  // why some layers have no costs
  struct Chosen {
    std::once_flag once;
    std::vector<passes::Annotation> annotations;
  };
  mutable std::map<int, Chosen> shardings_;  // by ranks along tp
  std::int64_t folded_ = 0;                  // layers of a model that stands for this one; 0: none does
  Spent prepared_;                           // before the search: part of what it takes
};

// The devices of a node, or of a CPU its cores: how many ranks there are where nobody says.
int usual_ranks(const cluster::Cluster& cluster);

// The keys of a candidate as settings: "parallel.mesh=dp=8".
std::vector<std::string> settings_of(const planner::Candidate& candidate);

// The text of a plan file (plan_file.h) for a compiled candidate, with how to launch it.
std::string plan_file_text(const OnCluster& on, const std::string& launch);

}  // namespace trireme::train
