#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/cost/rates.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Assigns the nodes of the forward graphs to the parts of a pipeline: every node gets the number of its part. Parts are
// runs of the forward order, cut where one tensor alone goes on (passes/chain.h).
//
//   %a = matmul(%x, @layers.0.weight)            %a = matmul(%x, @layers.0.weight)
//   %b = relu(%a)                          →     %b = relu(%a)
//   %c = matmul(%b, @layers.1.weight)            %c = matmul(%b, @layers.1.weight) stage=1
//
// The first of the graphs decides: parts are as long as `layers` says, or such that the longest takes the least time,
// with all that stands before and behind the layers counted. In the other graphs a node belongs to the part that has
// its parameters and otherwise to that of its operands. Comes before autodiff, which gives a gradient the part of the
// node that it belongs to.
class Stage : public Pass {
 public:
  struct Options {
    int parts = 1;
    std::vector<std::int64_t> layers = {};  // of each part; empty: balanced
    cost::Rates rates = {};
    std::vector<std::string> graphs = {"micro", "eval", "predict"};
  };
  explicit Stage(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "stage"; }
  // Refuses more parts than there are places to cut, and layers that are not those of the model.
  void run(ir::Module& module) const override;

 private:
  Options options_;
};

// The model's layers that a pipeline can be cut between: those that `layers` counts. 0: none is numbered.
std::int64_t count_layers(const ir::Graph& graph);

// The first of each part but the first, among `costs`, so that the most expensive part is as cheap as can be. Each part
// has at least one; there must be as many.
std::vector<std::size_t> balanced_cuts(const std::vector<double>& costs, int parts);

}  // namespace trireme::passes
