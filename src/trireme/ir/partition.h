#pragma once
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme::ir {

// Handed to an op's partition function when mesh axes shard one of its partitioned factors ("v*" in its factors) or
// one with a halo ("h~"); what is said here of the former holds of both. The function adds a small local graph, with
// collectives in it, and says which values are the node's outputs:
//
//   def.partition = [](PartitionContext& p) {                  // y = x − the mean over all rows
//     const ValueId mean = p.all_reduce(p.add("row_sum", {p.input(0)}).front());
//     p.set(0, p.add("shift", {p.input(0), mean}).front());
//   };
//
// Operands are local: what this rank has. Outputs are sharded as the factors say.
class PartitionContext {
 public:
  virtual ~PartitionContext() = default;

  virtual ValueId input(std::size_t i) const = 0;  // kNone: absent
  virtual std::size_t inputs() const = 0;
  virtual const TensorType& type(ValueId value) const = 0;
  virtual const Attributes& attributes() const = 0;

  // Of all ranks together.
  virtual const TensorType& whole_input(std::size_t i) const = 0;
  virtual const TensorType& whole_output(std::size_t i) const = 0;
  virtual std::size_t outputs() const = 0;
  // Of this rank's output.
  virtual TensorType local_output(std::size_t i) const = 0;

  // The axes that shard a dimension, outermost first.
  virtual const std::vector<std::string>& input_axes(std::size_t i, int dim) const = 0;
  virtual const std::vector<std::string>& output_axes(std::size_t i, int dim) const = 0;
  virtual int size_of(const std::string& axis) const = 0;
  // Ranks along all axes that shard partitioned factors.
  virtual std::int64_t parts() const = 0;
  // This rank's place along an axis, or among the ranks along several ("dp+tp", outermost first): i64 [].
  virtual ValueId place(const std::string& axis) = 0;
  // The same along an axis over which extents differ by rank (ir::is_spatial), so that the graph is made for one place.
  virtual int fixed_place(const std::string& axis) const = 0;
  // Whether work that needs no halo is worth splitting off, to be done while halos are exchanged.
  virtual bool overlaps_halos() const = 0;

  // A halo exchange (ops/collective/halo.h) that two nodes ask for is made once: whether one is there already.
  virtual bool is_exchanged(ValueId x, const Attributes& halo) const = 0;
  virtual std::vector<ValueId> add(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) = 0;
  // The sum, or "max", over all ranks along the axes that shard partitioned factors.
  virtual ValueId all_reduce(ValueId value, const std::string& reduce = "sum") = 0;
  // The sum over those ranks, sharded as output `i` is to be.
  virtual ValueId reduced(ValueId value, std::size_t output) = 0;

  // `terms` marks an output of which each rank along the axes that shard partitioned factors has one term of the sum.
  virtual void set(std::size_t output, ValueId value, bool terms = false) = 0;

  // Whether statistics over partitioned factors are to be those of each rank's own elements.
  virtual bool own_statistics() const = 0;
  // An output that is another on each rank along those axes: only nodes that are sharded as this one may read it.
  virtual void set_own(std::size_t output, ValueId value) = 0;
};

}  // namespace trireme::ir
