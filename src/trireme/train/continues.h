#pragma once
#include <string>

#include "trireme/compiler/graphs.h"

namespace trireme::train {

// Refuses a model of which one of the graphs that continue a sequence would not give what `whole`, the graph of that
// name over all its positions in a module of its own, gives for them: one with parameters that have as many elements as
// the graph has tokens, or that adds what is the same for each piece of the sequence, such as the first rows of a table
// of positions.
void check_continues(const std::string& family, const compiler::Graphs& graphs, const ir::Module& whole,
                     const std::string& name);

// Why such a graph cannot be built at all is the end of that sentence.
[[noreturn]] void refuse_to_continue(const std::string& family, const std::string& why);

}  // namespace trireme::train
