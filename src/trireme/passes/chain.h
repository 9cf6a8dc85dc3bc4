#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

// The forward phase as a chain: cut wherever exactly one tensor goes from what is before to what is after. A residual
// block is one segment or, where its branches meet, several; parallel branches are never cut apart.
//
//   %u = matmul(%x, @w)     ┐ segment 0
//   %a = relu(%u)           ┘ … each of these could be cut, and is: one tensor passes
//   %v = matmul(%a, @v)     ┐
//   %s = add(%a, %v)        ┘ one segment: %a passes around %v
struct Segment {
  std::size_t begin = 0;  // into Chain::nodes
  std::size_t end = 0;
  ir::ValueId input = ir::kNone;  // what enters; kNone for the first, and where several tensors enter
  std::string layer;              // of the model, that its first node which is not free belongs to: "blocks.3"
  std::string numbered;           // the first of the model's numbered layers that it has a part of; empty: of none
  bool begins_chunk = false;      // the first of what a stage does in one go; what enters it is received
  bool gradients_follow = false;  // at once: computing any of it again would gain nothing
};

struct Chain {
  std::vector<std::int32_t> nodes;  // the forward nodes but messages, in order: indices into the graph's
  std::vector<Segment> segments;

  // The value that leaves a segment for the next; kNone for the last of a chunk.
  ir::ValueId output(std::size_t segment) const {
    const bool last = segment + 1 == segments.size() || segments[segment + 1].begins_chunk;
    return last ? ir::kNone : segments[segment + 1].input;
  }
};

// Gradients follow the last segment, unless it ends with a message to another stage. Values that are `free` may go
// past any cut, with the tensor that is cut at.
Chain find_chain(const ir::Graph& graph, const std::vector<bool>& free = {});

// The same for a pipeline, whose stages can pass on several tensors: also cut where a numbered layer begins
// (b.scope("blocks", i)) although others go past it, as in a network with skips.
Chain find_stage_chain(const ir::Graph& graph, const std::vector<bool>& free = {});

// By value of a graph: scalars, and what no parameter is in, such as what a second model, which is not trained, makes
// of the same rows. None at all where no parameter is in anything.
std::vector<bool> free_values(const ir::Module& module, const ir::Graph& graph);

// By value: whether states alone are in it, such as a rounded weight. It can be made anywhere, and so passes no cut.
std::vector<bool> made_of_states(const ir::Graph& graph);

// The name of the value with which a segment begins.
const std::string& first_value(const ir::Graph& graph, const Chain& chain, const Segment& segment);

// The segments with which the model's numbered layers begin: the first that has a part of each. What a model does
// between two layers outside of their scopes is in the segment of the layer that comes next, or in one of its own.
std::vector<std::size_t> layer_begins(const Chain& chain);

// "blocks.3.attn.qkv.matmul" → "blocks.3", "stages.0.1.bn1.relu" → "stages.0.1", "head.matmul" → "head".
std::string layer_of(const std::string& value_name);

// Whether an op takes less time to run again than its output took to write: it moves bytes rather than computing.
bool is_cheap(const ir::Graph& graph, const ir::Node& node);

}  // namespace trireme::passes
