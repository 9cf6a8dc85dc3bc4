#pragma once
#include "trireme/ir/graph.h"

namespace trireme::ir {

// Throws, naming graph, node and value, unless the module is well formed:
//   1. every value is made once: by a node, as an input or as a state read, before it is read;
//   2. a node's operands, attributes and output types are what its op takes and infers;
//   3. names are unique: values and outputs in a graph, states and graphs in the module; and they print and parse;
//   4. writes and outputs name existing states and values, types agree (a sum may widen to f32), and a state is set at
//      most once per graph and not both set and added to; only step-local states are added to;
//   5. phases never go back from backward to forward: a forward node reads nothing made in the backward phases,
//      and an input gradient nothing made with the weight gradients, which a schedule may put off;
//   6. a derived state has a source that exists, is not derived itself and has the same shape;
//   7. a node on the host reads what is in the host's memory: states of tier 1, values stored there, what another such
//      node makes, or a view of these;
//   8. shardings have one entry per dimension and name axes of the mesh, each at most once; a state is read as stored.
void verify(const Module& module);

}  // namespace trireme::ir
