#include "trireme/planner/fitting_cuts.h"

#include <algorithm>

#include "trireme/planner/stage_cut.h"

namespace trireme::planner {
namespace {

// The module in which every piece is a stage of its own.
ir::Module cut_everywhere(const compiler::Graphs& graphs, compiler::Plan plan, const Pieces& pieces) {
  for (ir::Mesh::Axis& axis : plan.mesh.axes)
    if (axis.name == ir::kPipelineAxis) axis.size = static_cast<int>(pieces.first.size());
  plan.pipeline = {};
  plan.schedule_given.reset();
  plan.stage_layers.clear();
  plan.stage_cuts.assign(pieces.first.begin() + 1, pieces.first.end());
  compiler::Compilation compilation(graphs);
  compilation.run_until(plan, "split");
  return compilation.module();
}

}  // namespace

FittingCuts::FittingCuts(const compiler::Graphs& graphs, const compiler::Plan& plan, std::uint64_t limit)
    : pieces_(pieces_of(graphs, plan)), parts_(plan.parts()), limit_(static_cast<double>(limit)) {
  const std::size_t count = pieces_.first.size();
  for (std::size_t i = 0; i < count; ++i) place_[pieces_.first[i]] = i;
  const std::vector<PieceBytes> bytes = piece_bytes(cut_everywhere(graphs, plan, pieces_), count);
  const int replicas = plan.mesh.size_of(ir::kDataAxis);
  for (std::vector<double>* sums : {&states_, &tied_, &saved_, &weights_}) sums->assign(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    states_[i + 1] = states_[i] + bytes[i].state.sharded(plan.zero, replicas);
    tied_[i + 1] = tied_[i] + bytes[i].tied.sharded(plan.zero, replicas);
    saved_[i + 1] = saved_[i] + bytes[i].saved;
    weights_[i + 1] = weights_[i] + bytes[i].state.weights;
  }
  const program::Schedule schedule = plan.schedule(graphs.micro_batches);
  for (const int held : program::held(schedule)) held_.push_back(static_cast<double>(held) / schedule.chunks);
  for (const int versions : program::weight_versions(schedule)) versions_.push_back(versions - 1);
  beyond_estimate_.assign(held_.size(), 0);
}

double FittingCuts::estimate(std::size_t part, std::size_t first, std::size_t last) const {
  const std::size_t stage = stage_of(part);
  const double states = states_[last] - states_[first] + (first > 0 ? tied_[last] - tied_[first] : 0);
  return states + versions_[stage] * (weights_[last] - weights_[first]) + held_[stage] * (saved_[last] - saved_[first]);
}

std::vector<std::int64_t> FittingCuts::within(double limit) const {
  const double chunks = static_cast<double>(parts_) / static_cast<double>(held_.size());
  return balanced_parts(pieces_.seconds, parts_, [&](std::size_t part, std::size_t first, std::size_t last) {
    return estimate(part, first, last) * chunks + beyond_estimate_[stage_of(part)] <= limit;
  });
}

std::vector<std::string> FittingCuts::next(const std::vector<std::string>& cuts,
                                           const std::vector<std::uint64_t>& measured) {
  std::vector<std::size_t> begins = {0};
  for (const std::string& cut : cuts) begins.push_back(place_.at(cut));
  begins.push_back(pieces_.first.size());
  for (std::size_t stage = 0; stage < held_.size(); ++stage) {
    double estimated = 0;
    for (std::size_t part = stage; part + 1 < begins.size(); part += held_.size())
      estimated += estimate(part, begins[part], begins[part + 1]);
    beyond_estimate_[stage] = static_cast<double>(measured[stage]) - estimated;
  }
  std::vector<std::int64_t> found = within(limit_);
  if (found.empty()) {
    // To a hundredth, the least that any cuts are estimated to need.
    double least = limit_;
    auto most = static_cast<double>(*std::max_element(measured.begin(), measured.end()));
    while (most - least > 0.01 * limit_) {
      const double middle = (least + most) / 2;
      (within(middle).empty() ? least : most) = middle;
    }
    found = within(most);
  }
  if (found.empty()) return cuts;
  std::vector<std::string> next;
  std::size_t at = 0;
  for (std::size_t part = 0; part + 1 < found.size(); ++part) {
    at += static_cast<std::size_t>(found[part]);
    next.push_back(pieces_.first[at]);
  }
  return next;
}

}  // namespace trireme::planner
