#pragma once
#include "trireme/ir/graph.h"

namespace trireme::ir {

// Throws, naming graph, node and value, unless the module is well formed:
//   1. every value is made once: by a node, as an input or as a state read, before it is read;
//   2. a node's operands, attributes and output types are what its op infers;
//   3. value names are unique in a graph, state names in the module;
//   4. writes and outputs name existing states and values, types agree (a sum may widen to f32), and a state is set at
//      most once per graph and not both set and added to;
//   5. phases never go back from backward to forward: a forward node reads nothing made in the backward phases.
void verify(const Module& module);

}  // namespace trireme::ir
