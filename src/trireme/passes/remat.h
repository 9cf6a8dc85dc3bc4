#pragma once
#include "trireme/passes/chain.h"
#include "trireme/passes/pass.h"

namespace trireme::passes {

// What becomes of a run of a chain's segments between their forward and their gradients.
enum class Hold : std::uint8_t {
  keep,       // everything their gradients read
  expensive,  // all but what is cheap to make again from what is kept, or some of that
  input,      // only what enters the first of them: the rest is computed again, together
};

struct RematPlan {
  struct Group {
    std::int32_t segments = 1;
    Hold hold = Hold::keep;
    // expensive: nodes whose values are kept although they are cheap, by their place in the group, rising.
    std::vector<std::int32_t> kept = {};
    friend bool operator==(const Group&, const Group&) = default;
  };
  std::vector<Group> groups;  // all segments of the chain, in order
  friend bool operator==(const RematPlan&, const RematPlan&) = default;

  // "keep 2, input 4+4+3, expensive 1+1:0.3" and back; the last keeps what nodes 0 and 3 of its segment make.
  std::string str() const;
  static RematPlan parse(const std::string& text);
};

// Rematerialisation: forgets values of the forward phase and computes them again when a gradient needs them.
//
//   %a = relu(%u)                                    %a = relu(%u)
//   %b = matmul(%a, @v)                              %b = matmul(%a, @v)
//   …                                         →      …
//   %dv = matmul(%a, %db) weight_gradient            %a/again = relu(%u)               input_gradient, barrier
//                                                    %dv = matmul(%a/again, %db)       weight_gradient
//
// A node is computed again at most once, just before the first gradient that needs any of its outputs. It has the same
// operands and attributes, so the same bits come out (dropout draws the same numbers), and it writes no state. Runs
// before fusion, which then works on both copies.
class Remat : public Pass {
 public:
  struct Options {
    std::string graph = "micro";
    RematPlan plan;
  };
  explicit Remat(Options options) : options_(std::move(options)) {}
  std::string name() const override { return "remat"; }
  void run(ir::Module& module) const override;
  bool optional() const override { return true; }

 private:
  Options options_;
};

// For each value whether the plan forgets it. The group with the last segment is kept whatever the plan says: its
// gradients come at once.
std::vector<bool> forgotten_values(const ir::Graph& graph, const Chain& chain, const RematPlan& plan);

}  // namespace trireme::passes
