#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/compiler/compile.h"
#include "trireme/cost/rates.h"

namespace trireme::planner {

// "parallel.stages = [3,3,2]": numbers for so many chunks that add up to the layers, the first that differ by at most
// one.
std::string even_stages(std::int64_t layers, std::int64_t chunks);

// Where a pipeline is cut: the first value of each part but the first, in the forward order of a graph. Parts have as
// many layers as `layers` says; with none they are such that the longest takes the least time, with all that stands
// before and behind the layers counted. Refuses more parts than there are places to cut, and layers that are not those
// of the model.
std::vector<std::string> stage_cuts(const ir::Module& module, const std::string& graph, int parts,
                                    const std::vector<std::int64_t>& layers, const cost::Rates& rates);
// Those of a plan, of which everything that comes before the stages is known. Without a pipeline: none.
std::vector<std::string> stage_cuts(const compiler::Graphs& graphs, const compiler::Plan& plan);
// The pieces of a model between which a pipeline can be cut: the first value of each, and what its forward pass takes.
struct Pieces {
  std::vector<std::string> first;
  std::vector<double> seconds;
};
Pieces pieces_of(const compiler::Graphs& graphs, const compiler::Plan& plan);
// Refuses cuts of a plan that are none of its model's.
void check_stage_cuts(const compiler::Graphs& graphs, const compiler::Plan& plan);

}  // namespace trireme::planner
