#include "trireme/program/categories.h"

#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/message.h"

namespace trireme::program {

Category category_of(const ir::State& state) {
  switch (state.category) {
    case ir::Category::weights:
    case ir::Category::statistics: return Category::weights;
    case ir::Category::gradients: return Category::gradients;
    case ir::Category::optimizer: return Category::optimizer;
    case ir::Category::cache: return Category::activations;
    case ir::Category::scalars: break;
  }
  return Category::staging;
}

Category category_made(const GraphRun& run, const ir::Node& node) {
  // Sums of weights' gradients; of activations and their gradients, where tp shards the sequence.
  if (node.op->name == ops::kReduceScatter)
    return node.phase == ir::Phase::forward || node.phase == ir::Phase::input_gradient ? Category::activations
                                                                                       : Category::gradients;
  if (node.op->name == ops::kAllToAll || node.op->name == ops::kSend) return Category::staging;
  if (node.op->name != ops::kAllGather) return Category::activations;
  if (run.graph.type(node.outputs.front()).dtype == DType::u8) return Category::staging;
  // Shards of a weight, or of an activation.
  ir::ValueId from = node.inputs.front();
  for (std::int32_t producer = run.uses.producer[ir::index(from)]; producer != ir::kNone;
       producer = run.uses.producer[ir::index(from)]) {
    const ir::Node& made = run.graph.nodes[ir::index(producer)];
    if (!made.op->traits.view && made.op->name != "cast") return Category::activations;
    from = made.inputs.front();
  }
  return run.graph.value(from).kind == ir::ValueInfo::Kind::state ? Category::weights : Category::activations;
}

}  // namespace trireme::program
