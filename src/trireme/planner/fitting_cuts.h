#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/planner/piece_bytes.h"
#include "trireme/planner/stages.h"

namespace trireme::planner {

// Moves the cuts of a pipeline where a stage does not fit a limit. The bytes of a stage are estimated: states of its
// pieces, versions of its weights, and what is saved of them for as many micro-batches as the schedule holds there.
// What a step needs besides is learned from steps that were lowered.
//
//   FittingCuts fitting(graphs, plan, limit);
//   while (…) plan.stage_cuts = fitting.next(plan.stage_cuts, lowered(plan));
class FittingCuts {
 public:
  FittingCuts(const compiler::Graphs& graphs, const compiler::Plan& plan, std::uint64_t limit);

  // With `cuts` the stages need `measured` bytes: the cuts of least time whose stages are now estimated to fit. Where
  // there are none, those whose fullest stage is estimated to need least.
  std::vector<std::string> next(const std::vector<std::string>& cuts, const std::vector<std::uint64_t>& measured);

 private:
  double estimate(std::size_t part, std::size_t first, std::size_t last) const;
  std::vector<std::int64_t> within(double limit) const;
  std::size_t stage_of(std::size_t part) const { return part % held_.size(); }

  Pieces pieces_;
  std::map<std::string, std::size_t> place_;  // of a piece, by its first value
  int parts_;
  double limit_;
  // Sums over the pieces before each: of their states, of those that an earlier piece has too, of what is saved.
  std::vector<double> states_, tied_, saved_;
  std::vector<double> weights_;          // and of what a version of the weights takes
  std::vector<double> held_;             // by stage: micro-batches
  std::vector<double> versions_;         // by stage: of the weights, beyond the first
  std::vector<double> beyond_estimate_;  // by stage: what a step needed more than estimated
};

}  // namespace trireme::planner
