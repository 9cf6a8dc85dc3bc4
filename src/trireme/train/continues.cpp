#include "trireme/train/continues.h"

#include <algorithm>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

// By value: whether it is made of parameters alone, and of nothing that knows where in the sequence the piece is.
std::vector<bool> same_for_every_piece(const ir::Graph& graph) {
  std::vector<bool> same(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v) same[v] = graph.values[v].kind == ir::ValueInfo::Kind::state;
  for (const ir::Node& node : graph.nodes)
    if (node.op->name != "sequence_slice" && !node.inputs.empty() &&
        std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&](ir::ValueId id) { return id == ir::kNone || same[ir::index(id)]; }))
      for (const ir::ValueId id : node.outputs) same[ir::index(id)] = true;
  return same;
}

}  // namespace

void refuse_to_continue(const std::string& family, const std::string& why) {
  refuse(
      "model.family = \"{}\": generation takes a prompt in pieces and then one token at a time, and {}; the nearest is "
      "attention's own rotary positions, or Trainer::generate, which computes the whole sequence for each token",
      family, why);
}

void check_continues(const std::string& family, const compiler::Graphs& graphs, const ir::Module& whole,
                     const std::string& name) {
  const ir::Graph& all = whole.graph(name);
  for (const std::int64_t rows : graphs.prefill) {
    const ir::Graph& piece = graphs.module.graph(compiler::prefill_graph(rows));
    const std::vector<bool> same = same_for_every_piece(piece);
    for (std::size_t v = 0; v < piece.values.size(); ++v) {
      if (!same[v]) continue;
      const ir::ValueInfo& own = piece.values[v];
      for (const ir::ValueInfo& other : all.values)
        if (other.name == own.name && other.type != own.type)
          refuse_to_continue(
              family,
              fmt::format("its '{}', {} of the whole sequence and {} of {} of its tokens, does not know which",
                          own.name.substr(own.name.starts_with('@') ? 1 : 0), other.type.str(), own.type.str(), rows));
    }
    const Shape& logits = piece.type(piece.outputs.front().value).shape;
    if (logits.rank() != 3 || logits[0] != 1 || logits[1] != rows)
      refuse_to_continue(family, fmt::format("of {} tokens it makes predictions of the shape {}", rows, logits.str()));
  }
}

}  // namespace trireme::train
