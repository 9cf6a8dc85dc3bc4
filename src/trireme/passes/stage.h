#pragma once
#include <string>
#include <vector>

#include "trireme/passes/chain.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// Assigns the nodes of the forward graphs to the parts of a pipeline: every node gets the number of its part. Parts are
// runs of the forward order, cut where one tensor alone goes on, with scalars and with what no parameter is in, or
// where a numbered layer begins (passes/chain.h).
//
//   %a = matmul(%x, @layers.0.weight)            %a = matmul(%x, @layers.0.weight)
//   %b = relu(%a)                          →     %b = relu(%a)
//   %c = matmul(%b, @layers.1.weight)            %c = matmul(%b, @layers.1.weight) stage=1
//
// In the first of the graphs each part but the first begins with the value that `cuts` names. In the other graphs a
// node belongs to the part that has its parameters and otherwise to that of its operands. Comes before autodiff, which
// gives a gradient the part of the node that it belongs to.
// What is made of states alone belongs to the part that reads it first.
class Stage : public Pass {
 public:
  struct Options {
    int parts = 1;
    std::vector<std::string> cuts = {};  // first values of the parts behind the first, in order
    std::vector<std::string> graphs = {"micro", "eval", "predict"};
  };
  explicit Stage(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "stage"; }
  // Refuses what is no first value of a part, with the nearest that is.
  void run(ir::Module& module) const override;
  // The segments of a graph's chain that `cuts` name, with the same refusals.
  static std::vector<std::size_t> find_cuts(const ir::Graph& graph, const Chain& chain, int parts,
                                            const std::vector<std::string>& cuts);

 private:
  Options options_;
};

}  // namespace trireme::passes
