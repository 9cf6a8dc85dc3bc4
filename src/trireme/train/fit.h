#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/train/plan_search.h"

namespace trireme::train {

// What grows until a machine cannot train it any more.
enum class Grow : std::uint8_t { model, context, batch };

struct FitRequest {
  PlanRequest plan;
  Grow grow = Grow::model;
  std::function<void(const std::string& what, std::size_t tried)> on_try = {};
  // Called for each that fits and is larger than those before.
  std::function<void(const std::string& what, const planner::Scored& plan)> on_fit = {};
};

// The largest that some plan of the space trains, and what the next larger one would need. Exact: by the bytes of
// compiled memory plans.
struct Fit {
  Config config;
  planner::Scored plan;
  std::uint64_t parameters = 0;
  std::string what;  // "48 layers, width 6144", "context 8192"
  std::string next;  // the next larger one, and why it is not trained
  std::size_t tried = 0;
  bool stopped = false;  // by a request: a larger one may fit; with nothing found so far, `what` is empty
};

// By bisection; a model grows in width by whole heads, and in layers so that their proportion stays. Refuses where not
// even the smallest fits.
Fit largest_fit(const Config& config, const Registry& registry, const FitRequest& request);

struct CheapestRequest {
  std::vector<cluster::Cluster> clusters;
  double tokens = 0;   // or images
  double seconds = 0;  // in which they are to be trained
  int max_nodes = 512;
  PlanRequest plan = {};  // its cluster and ranks are not read
  std::function<void(const std::string& what)> on_try = {};
};

struct Offer {
  std::string cluster;
  int ranks = 0;
  planner::Scored plan;
  double seconds = 0;        // of the whole training
  double cost = 0;           // dollars
  std::string refused = {};  // why this cluster is not offered; the rest is then empty
};

// Of each cluster the fewest nodes (a power of two) that train in time, the cheapest offer first: more ranks are never
// cheaper, since none of them does more for it.
std::vector<Offer> cheapest_clusters(const Config& config, const Registry& registry, const CheapestRequest& request);

}  // namespace trireme::train
