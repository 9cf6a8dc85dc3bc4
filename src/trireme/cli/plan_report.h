#pragma once
#include <nlohmann/json.hpp>

#include <string>

#include "trireme/planner/search.h"
#include "trireme/simulator/simulate.h"
#include "trireme/train/on_cluster.h"

namespace trireme::cli {

// What a search has found, for people and scripts.
struct PlanReport {
  planner::SearchResult result;
  planner::Objective objective = planner::Objective::time;
  planner::Candidate candidate;  // the winner
  train::OnCluster on;           // compiled
  simulator::Simulation simulation;
  double limit = 0;       // bytes of a rank
  std::int64_t rows = 0;  // of a step
  std::string launch;
  // Rows per second over those of now, with twice the batch and with one more node; 0: nothing fits or divides.
  double larger_batch = 0;
  double another_node = 0;
};

std::string seconds_text(double seconds);
std::string plan_summary(const PlanReport& report);
// The best ten by kind of time, why the runner-up loses, what limits the winner, what more would give.
std::string explanation(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

// Before anything that takes long: a plan takes the place of another one, and of nothing else. Refuses a file that
// cannot be written, by the `option` that names it; "": none is asked for.
void check_plan_out(const std::string& option, const std::string& file);
// Makes the folder that it is in, too.
void write_plan(const std::string& file, const std::string& text);

}  // namespace trireme::cli
