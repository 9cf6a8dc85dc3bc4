#pragma once
#include <optional>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::passes {

using Axes = std::vector<std::string>;

// How a node computes when mesh axes shard some of its factors (ir/factors.h): how it takes its operands, and how its
// outputs come out.
//
//   %y = matmul(%x, @w)         b:dp            takes %x [dp,_,_]                     →  %y [dp,_,_]
//   %y = matmul(%h, @w)         k:tp            takes %h [_,_,tp] and @w [_,tp]       →  %y partial(sum:tp)
//   %s = sum_squares(@w/grad)   d0:tp           takes it as [tp,_]                    →  %s partial(sum:tp)
struct NodeSharding {
  std::vector<Axes> factors;         // by factor: the axes that shard it, outermost first
  std::vector<std::string> through;  // axes over which operands are terms of sums, and so are the outputs
  std::vector<ir::Sharding> inputs;  // absent operands: whole
  std::vector<ir::Sharding> outputs;
  Axes partitioned;  // axes that shard partitioned factors or those with a halo, for which the op's partition function
                     // is needed
};

// The rules of one node, whose types are global.
class NodeRules {
 public:
  NodeRules(const ir::Node& node, const ir::Types& inputs, const ir::Types& outputs);

  const ir::Factors& factors() const { return factors_; }
  bool shardable(int factor, const std::string& axis) const;
  // Whether it is sharded with the help of the op's partition function.
  bool by_function(int factor) const;
  // Whether padding may follow the factor's elements: zeros beyond the end of its extent are harmless.
  bool may_pad(int factor) const {
    return node_.op->traits.pads && !factors_.factors[static_cast<std::size_t>(factor)].exact;
  }
  // The factor's extent; operands with another extent in its place (grouped heads) have a divisor of it.
  std::int64_t extent(int factor) const;
  // Whether every operand's extent along the factor divides by the ranks along the axes, or may be padded, or is that
  // of the outer axes alone: then ranks along the others share an element. Spatial axes shard in true extents: each
  // rank must have some of every operand.
  bool fits(int factor, const Axes& axes, const ir::Mesh& mesh) const;

  // The factor that the data axis has to shard, wherever there is one (Factor::share).
  std::optional<int> share() const;

  // The axes, of those that shard the factors, for which the op's partition function is needed.
  Axes partitioned(const std::vector<Axes>& axes) const;

  // Where so many ranks are more than some operand has elements along the factor, and each of these could be shared by
  // equally many of the ranks: how many elements that are; 0: elsewhere.
  std::int64_t shared_by(int factor, std::int64_t ranks) const;

  // What follows from an assignment of axes to factors. `operands` says which inputs are terms of sums.
  NodeSharding sharded(std::vector<Axes> axes, std::vector<std::string> through,
                       const std::vector<ir::Sharding>& operands, const ir::Mesh& mesh) const;

  // How an output is to be before something is added to its sum: as wanted, but for the dimensions that it has in
  // common with operands that make no terms of it, such as a bias. These stay as the operands have them. Those of an
  // exact factor that would be padded stay whole.
  ir::Sharding with_operands(const NodeSharding& way, std::size_t output, ir::Sharding wanted,
                             const ir::Mesh& mesh) const;

  // Axes over which sums may go through the node: those of which its float operands are terms, as its op allows.
  std::vector<std::string> sums_through(const std::vector<ir::Sharding>& operands) const;

 private:
  // Of an operand with fewer elements along the factor than others: the outer axes, along which each rank has one.
  std::optional<Axes> shared_axes(int factor, std::int64_t own, const Axes& axes, const ir::Mesh& mesh) const;

  const ir::Node& node_;
  ir::Types inputs_;
  ir::Types outputs_;
  ir::Factors factors_;
};

}  // namespace trireme::passes
