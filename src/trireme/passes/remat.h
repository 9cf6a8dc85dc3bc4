#pragma once
#include <set>
#include <string>
#include <vector>

#include "trireme/passes/pass.h"

namespace trireme::passes {

// Rematerialisation: forgets values of the forward phase and recomputes them when a gradient needs them.
//
//   %a = relu(%u)                                    %a = relu(%u)
//   %b = matmul(%a, @v)                              %b = matmul(%a, @v)
//   …                                         →      …
//   %dv = matmul(%a, %db) weight_gradient            %a/again = relu(%u)               input_gradient, barrier
//                                                    %dv = matmul(%a/again, %db)       weight_gradient
//
// A node is recomputed at most once, just before the first gradient that needs any of its outputs. It has the same
// operands and attributes, so the same bits come out (dropout draws the same numbers), and it writes no state. Runs
// before fusion, which then works on both copies. Which values are forgotten is decided before
// (planner/remat_policy.h); views of a value are named with it. What comes from another stage, or is
// exchanged along h or w, is never forgotten.
class Remat : public Pass {
 public:
  struct Options {
    std::string graph = "micro";
    std::vector<std::string> recompute = {};  // values of the forward phase, by name
    bool partial = false;                     // of a role, to which not all of the names belong
  };
  explicit Remat(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "remat"; }
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

// The names of what the graph's forward phase makes itself.
std::set<std::string> forward_values(const ir::Graph& graph);
// Refuses a name that is none of these.
void check_recomputed(const std::set<std::string>& forward, const std::vector<std::string>& names);

}  // namespace trireme::passes
