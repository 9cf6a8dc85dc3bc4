#pragma once
#include "trireme/compiler/graphs.h"
#include "trireme/passes/dimension_groups.h"
#include "trireme/passes/prune.h"
#include "trireme/train/config.h"

namespace trireme::train {

class Session;

// What [prune] asks for, of a model's graphs: which parameters, in which steps. prune.method is not "none".
passes::Prune::Options pruning(const Config& config, const compiler::Graphs& graphs);

// The weights of products and convolutions, in order: what is pruned element by element. Embeddings, an output layer
// that shares their table, norms and biases are not.
std::vector<std::string> prunable_parameters(const compiler::Graphs& graphs);

// How many elements of such a parameter, which lie one behind the other, each of its sums is over.
std::int64_t summed_elements(const compiler::Graphs& graphs, const std::string& parameter);

// The kind of slices that a structured pattern takes out; nothing for the others.
std::optional<passes::DimensionGroup::Kind> slices_of(const Choice<PrunePattern>& pattern);

// Why a model whose groups these are has none of a kind, and the nearest pattern that it has: the end of a sentence.
std::string no_such_slices(const models::ModelConfig& model, passes::DimensionGroup::Kind kind,
                           const std::vector<passes::DimensionGroup>& groups);

// Refuses, by key, what does not go together.
void check_pruning(const Config& config);

// A run that starts from pruned weights and does not prune: its zeros fill up. Says so, with the keys that keep them,
// by what the first rank of this process has; "": it prunes, or nothing was pruned.
std::string filling_warning(const Config& config, const compiler::Graphs& graphs, Session& session);

// The step whose learning rate a step has: rounds that begin with rewound weights repeat the schedule from there.
std::int64_t scheduled_step(const Config& config, std::int64_t step);

}  // namespace trireme::train
