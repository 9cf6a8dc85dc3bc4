#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/candidate.h"
#include "trireme/planner/profile.h"

namespace trireme::planner {

// What a candidate takes by formula: quick enough for thousands of them, and good enough to choose the few that are
// compiled and simulated.
struct Estimate {
  double seconds = 0;
  double bytes = 0;                       // of the fullest rank
  double least_bytes = 0;                 // a bound: its states and what waits for the backward pass, and nothing else
  std::vector<std::int64_t> stages = {};  // layers of each part, as the cut of least time has them
};

class Estimator {
 public:
  // `limit`: bytes of a rank. `cluster` must outlive it.
  Estimator(const cluster::Cluster& cluster, std::int64_t batch, double limit, bool overlap)
      : cluster_(cluster), batch_(batch), limit_(limit), overlap_(overlap) {}

  Estimate of(const Candidate& candidate, const Profile& profile);

 private:
  struct Parts {
    std::vector<LayerCost> cost;       // by part
    std::vector<std::int64_t> layers;  // by part
  };
  Parts cut(const Candidate& candidate, const Profile& profile);
  double held(const Candidate& candidate, int stage) const;
  // Of what micro-batches save, the bytes that stay on the device.
  static double kept(const Candidate& candidate, double saved);
  // Seconds of bytes to or from the tier that holds what is offloaded.
  double moved(double bytes) const;
  double state_bytes(const StateBytes& state, const Candidate& candidate) const;
  std::int64_t micro_batches(const Candidate& candidate) const;

  const cluster::Cluster& cluster_;
  std::int64_t batch_;
  double limit_;
  bool overlap_;
  // Cuts by time alone, of layers that are sharded the same, by number of parts.
  std::map<std::pair<LayerKey, int>, std::vector<std::int64_t>> by_time_;
};

}  // namespace trireme::planner
