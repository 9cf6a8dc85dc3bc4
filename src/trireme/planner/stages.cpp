#include "trireme/planner/stages.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/passes/chain.h"
#include "trireme/passes/stage.h"
#include "trireme/planner/stage_cut.h"

namespace trireme::planner {
namespace {

using ir::index;
using passes::Chain;

std::vector<double> seconds_of(const ir::Graph& graph, const Chain& chain, const cost::Rates& rates) {
  const std::vector<double> starts = cost::start_times(graph, rates);
  std::vector<double> costs;
  for (const passes::Segment& segment : chain.segments) {
    double seconds = 0;
    for (std::size_t i = segment.begin; i < segment.end; ++i)
      seconds += starts[index(chain.nodes[i]) + 1] - starts[index(chain.nodes[i])];
    costs.push_back(seconds);
  }
  return costs;
}

std::vector<std::size_t> by_cost(const ir::Graph& graph, const Chain& chain, int parts, const cost::Rates& rates) {
  std::vector<std::size_t> cuts;
  std::int64_t before = 0;
  for (const std::int64_t segments : balanced_parts(seconds_of(graph, chain, rates), parts)) {
    if (before > 0) cuts.push_back(static_cast<std::size_t>(before));
    before += segments;
  }
  return cuts;
}

// A part ends where the first layer of the next begins; what is before and behind all layers goes with the outermost.
std::vector<std::size_t> by_layers(const Chain& chain, int parts, const std::vector<std::int64_t>& all) {
  const std::vector<std::size_t> begins = layer_begins(chain);
  std::int64_t given = 0;
  for (const std::int64_t layers : all) given += layers;
  if (begins.empty())
    refuse(
        "parallel.stages counts the model's layers, and none of its scopes has a number, as b.scope(\"blocks\", i) "
        "has; "
        "the nearest is parallel.stages = []");
  if (all.size() != index(parts))
    refuse("parallel.stages lists {} number{}, and the pipeline has {} parts; the nearest is {}", all.size(),
           all.size() == 1 ? "" : "s", parts, even_stages(std::ssize(begins), parts));
  if (given != std::ssize(begins))
    refuse("parallel.stages add up to {} layers, and the model has {} that can be cut apart; the nearest is {}", given,
           begins.size(), even_stages(std::ssize(begins), parts));
  std::vector<std::size_t> cuts;
  std::int64_t before = 0;
  for (std::size_t part = 0; part + 1 < all.size(); ++part) {
    before += all[part];
    cuts.push_back(begins[index(static_cast<std::int32_t>(before))]);
  }
  return cuts;
}

}  // namespace

std::string even_stages(std::int64_t layers, std::int64_t chunks) {
  if (layers < chunks) return "parallel.stages = []";
  std::vector<std::int64_t> all;
  for (std::int64_t c = 0; c < chunks; ++c) all.push_back(layers / chunks + (c < layers % chunks ? 1 : 0));
  return fmt::format("parallel.stages = [{}]", fmt::join(all, ","));
}

std::vector<std::string> stage_cuts(const ir::Module& module, const std::string& name, int parts,
                                    const std::vector<std::int64_t>& layers, const cost::Rates& rates) {
  const ir::Graph& graph = module.graph(name);
  const Chain chain = passes::find_stage_chain(graph, passes::free_values(module, graph));
  if (chain.segments.size() < index(parts))
    refuse("the model can be cut in {} parts at most, and the pipeline has {}", chain.segments.size(), parts);
  std::vector<std::string> names;
  for (const std::size_t cut : layers.empty() ? by_cost(graph, chain, parts, rates) : by_layers(chain, parts, layers))
    names.push_back(passes::first_value(graph, chain, chain.segments[cut]));
  return names;
}

namespace {

// The model before it is cut, and the first of the graphs that the pass cuts.
class Uncut {
 public:
  Uncut(const compiler::Graphs& graphs, const compiler::Plan& plan) : compilation_(graphs) {
    compilation_.run_until(plan, "stage");
    const ir::Module& module = compilation_.module();
    first_ = module.has_graph("micro") ? "micro" : "eval";
    if (!graphs.prefill.empty()) first_ = compiler::prefill_graph(graphs.prefill.front());
  }
  const ir::Module& module() const { return compilation_.module(); }
  const std::string& name() const { return first_; }
  const ir::Graph& graph() const { return module().graph(first_); }
  Chain chain() const { return passes::find_stage_chain(graph(), passes::free_values(module(), graph())); }

 private:
  compiler::Compilation compilation_;
  std::string first_;
};

// The setting that makes as many parts as there are, or the most below.
std::string nearest_pipeline(const compiler::Plan& plan, int most) {
  const int chunks = plan.stages() == 0 ? 1 : most / plan.stages();
  if (plan.pipeline.chunks > 1 && chunks > 1) return fmt::format("parallel.pipeline = \"interleaved:{}\"", chunks);
  if (plan.pipeline.chunks > 1 && chunks == 1) return "parallel.pipeline = \"1f1b\"";
  ir::Mesh mesh = plan.mesh;
  for (ir::Mesh::Axis& axis : mesh.axes)
    if (axis.name == ir::kPipelineAxis) axis.size = most;
  return fmt::format("parallel.mesh = \"{}\"", mesh.str());
}

}  // namespace

std::vector<std::string> stage_cuts(const compiler::Graphs& graphs, const compiler::Plan& plan) {
  if (plan.stages() == 1) return {};
  const Uncut uncut(graphs, plan);
  const auto most = static_cast<int>(uncut.chain().segments.size());
  if (most < plan.parts())
    refuse(
        "parallel.mesh = \"{}\": the model can be cut in {} part{} at most, and the pipeline has {}{}; the nearest is "
        "{}",
        plan.mesh.str(), most, most == 1 ? "" : "s", plan.parts(),
        plan.pipeline.chunks > 1 ? fmt::format(", {} chunks of each stage", plan.pipeline.chunks) : "",
        nearest_pipeline(plan, most));
  return stage_cuts(uncut.module(), uncut.name(), plan.parts(), plan.stage_layers, cost::Rates::of(plan.device));
}

Pieces pieces_of(const compiler::Graphs& graphs, const compiler::Plan& plan) {
  const Uncut uncut(graphs, plan);
  const Chain chain = uncut.chain();
  Pieces pieces{{}, seconds_of(uncut.graph(), chain, cost::Rates::of(plan.device))};
  for (const passes::Segment& segment : chain.segments)
    pieces.first.push_back(passes::first_value(uncut.graph(), chain, segment));
  return pieces;
}

void check_stage_cuts(const compiler::Graphs& graphs, const compiler::Plan& plan) {
  if (plan.stages() == 1) return;
  const Uncut uncut(graphs, plan);
  passes::Stage::find_cuts(uncut.graph(), uncut.chain(), plan.parts(), plan.stage_cuts);
}

}  // namespace trireme::planner
