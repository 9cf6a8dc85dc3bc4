#pragma once
#include <functional>
#include <optional>

#include "trireme/compress/model.h"
#include "trireme/passes/dimension_groups.h"

namespace trireme::compress {

// What to take out of a trained model: "heads:0.3", "neurons:0.3", "channels:0.25", "blocks:0.25", "unstructured:0.8",
// "2:4", or several by commas, done in order.
struct PruneStep {
  enum class Pattern { unstructured, two_of_four, heads, neurons, channels, blocks };
  Pattern pattern = Pattern::unstructured;
  double sparsity = 0.5;
  std::string text;
};
// Refuses, as --prune, what it does not know and shares outside of 0 to 1.
std::vector<PruneStep> parse_prune(const std::string& text);

struct PruneOptions {
  bool random = false;     // scores are drawn; else magnitudes
  std::uint64_t seed = 1;  // of those
  // The loss of a model, for the choice of blocks; null: by the magnitude of their weights.
  std::function<double(const Model&)> loss = {};
};

// Heads, neurons and channels leave the tensors, which become smaller, and so do the model's keys; blocks leave as a
// whole. The same number leaves every layer: a family's shapes are uniform. Elements become zero. Refuses what a family
// cannot lose.
void prune(Model& model, const PruneStep& step, const PruneOptions& options, const train::Registry& registry);

// How the loss grows when one group of weights alone is pruned to a sparsity: for each parameter that can be pruned.
struct Sensitivity {
  std::string parameter;
  std::int64_t elements = 0;
  std::vector<double> loss;  // by sparsity
};
std::vector<Sensitivity> sensitivity(const Model& model, std::span<const double> sparsities,
                                     const PruneOptions& options, const train::Registry& registry,
                                     const std::function<void(std::size_t done, std::size_t all)>& progress = {});

// The share of zeros among the elements of the parameters that can be pruned.
double sparsity_of(const Model& model, const train::Registry& registry);

}  // namespace trireme::compress
