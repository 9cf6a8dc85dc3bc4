#pragma once
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// Handed to an op's partition function when one of its whole factors is cut over a mesh axis. The function adds a small
// local graph, with collectives in it, and says which values are the node's outputs:
//
//   def.partition = [](PartitionContext& p) {                  // y = x − the mean over all rows
//     const ValueId mean = p.all_reduce(p.add("row_sum", {p.input(0)}).front());
//     p.set(0, p.add("shift", {p.input(0), mean}).front());
//   };
//
// Operands are local: what this rank holds. Outputs are cut as the factors say.
class PartitionContext {
 public:
  virtual ~PartitionContext() = default;

  virtual ValueId input(std::size_t i) const = 0;  // kNone: absent
  virtual const TensorType& type(ValueId value) const = 0;
  virtual const Attributes& attributes() const = 0;
  virtual const std::string& axis() const = 0;  // over which the factor is cut
  virtual int parts() const = 0;                // ranks along it

  virtual std::vector<ValueId> add(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) = 0;
  // The sum over all ranks along the axis.
  virtual ValueId all_reduce(ValueId value) = 0;
  // `terms` marks an output of which each rank holds one term of the sum.
  virtual void set(std::size_t output, ValueId value, bool terms = false) = 0;
};

}  // namespace trireme::ir
