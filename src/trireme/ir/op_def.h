#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"
#include "trireme/ir/factors.h"

namespace trireme::device {
class Algorithms;
class Kernel;
enum class Kind;
}  // namespace trireme::device

namespace trireme::ir {

class GradientContext;
class PartitionContext;
class Value;

// What mixed precision does with an op (see passes/precision).
enum class Precision {
  low,     // worth running in the low precision: its float inputs are cast down
  follow,  // runs in whatever its first float input has
  keep,    // its float inputs are cast up to f32
};

struct OperandSpec {
  std::string name;
  bool optional = false;  // may be absent
  bool variadic = false;  // the last operand only: zero or more values
  bool keep_f32 = false;  // stays f32 whatever the op's precision (norm weights, running statistics)
};

struct Cost {
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
};

// What an op makes of operands of which each rank holds one term of a sum: the same sum's terms, or nothing useful.
enum class Linear {
  no,
  jointly,     // where all its float operands are such terms: add(a, b)
  separately,  // where exactly one of them is: mul(a, b)
};

struct Traits {
  bool elementwise = false;  // every output element depends on the input elements of the same index only
  bool view = false;         // output 0 is input 0's bytes under another shape: nothing is launched
  bool commutative = false;
  // {output, input}: the kernel is right when both are the same buffer. Lowering reuses the buffer of a dying input.
  std::vector<std::pair<int, int>> in_place;
  bool in_place_each = false;  // the same for output i and input i, however many there are
  Linear linear = Linear::no;
  // Zeros beyond the end of a dimension of the operands give zeros there in the results, and change nothing before it:
  // a dimension that is sharded in unequal parts may be padded, unless its factor is exact.
  bool pads = false;
  bool collective = false;   // needs all ranks along the axis that it names: run by the executor, not by a kernel
  bool accumulates = false;  // the CPU and CUDA kernels honour KernelSpec::accumulate for output 0
  // The optional operand i32 [] with the position of the sequence's first row: absent, the sequence starts there.
  int position_operand = -1;

  bool allows_in_place(int output, int input) const;
};

// What a kernel is prepared for.
struct KernelSpec {
  std::span<const TensorType> inputs;  // absent optional operands have present == false
  std::span<const TensorType> outputs;
  const Attributes& attributes;
  int threads = 1;
  bool accumulate = false;  // add to output 0 instead of overwriting it
  // Of the run whose kernel it is (device/algorithm_cache.h), where a library's algorithms are chosen; it outlives the
  // kernel. Null: of none.
  device::Algorithms* algorithms = nullptr;
};

struct KernelDef {
  // Whether these types can run. A kernel that says no is a clear error when the program is lowered.
  std::function<bool(const KernelSpec&)> supports;
  // Scratch bytes: a function of the spec alone, the same on every machine. Empty: none.
  std::function<std::size_t(const KernelSpec&)> workspace;
  std::function<std::shared_ptr<device::Kernel>(const KernelSpec&)> prepare;
  // Whether the kernel that is prepared is a device::GroupKernel, which does many launches at once; and whether the
  // workspace of one of these is enough for all.
  bool groups = false;
  bool shares_workspace = false;
  // What the kernel allocates when it is prepared, because a library wants more than the workspace on this machine.
  // Empty: nothing.
  std::function<std::size_t(const KernelSpec&)> own = {};
};

using Types = std::vector<TensorType>;

// What integers may be that number rows of a table or classes.
struct IndexRange {
  std::int64_t below = 0;
  bool negative = false;  // negative ones are allowed too: they do not count
};
struct IndexOperand {
  int operand = -1;  // none
  std::function<IndexRange(std::span<const TensorType> inputs, const Attributes&)> range = {};
};

// Everything about an op. All fields are required (a test fails when one is empty), except for composite ops, which are
// given by other ops and need only name, operands, attributes and `compose`.
struct OpDef {
  std::string name;
  std::vector<OperandSpec> operands;
  std::vector<AttributeSpec> attributes;

  // Output types from input types; throws Error with what was expected. Absent operands have present == false.
  std::function<Types(std::span<const TensorType> inputs, const Attributes&)> infer;

  // Adds the nodes of the gradient: see GradientContext. Exactly one of `gradient` and `no_gradient` (why not) is set.
  std::function<void(GradientContext&)> gradient;
  std::string no_gradient;

  // How the op may be sharded, over the real types of a node.
  std::function<Factors(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attributes&)>
      factors;

  // For partitioned factors, which need more than a partial sum: see PartitionContext. May be empty.
  std::function<void(PartitionContext&)> partition;

  // What changes in a node's attributes where it has shards of its operands and makes shards of its outputs, whose
  // types are given. Empty: nothing.
  std::function<Attributes(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attributes&)>
      localize;

  // The operand whose integers have a range: a wrong one in a batch is named before the op has it.
  IndexOperand index;

  std::function<Cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs, const Attributes&)> cost;

  Precision precision = Precision::follow;
  bool precision_set = false;  // `OpDef::with_precision` sets both, so that forgetting the policy shows
  Traits traits;

  std::map<device::Kind, KernelDef> kernels;

  // Composite: expands to other ops when added to a graph.
  std::function<std::vector<Value>(std::span<const Value> inputs, const Attributes&)> compose;

  bool composite() const { return static_cast<bool>(compose); }
  void with_precision(Precision p) {
    precision = p;
    precision_set = true;
  }
  // Names of the required fields that are empty.
  std::vector<std::string> missing_fields() const;
};

// The ops a graph may use: an ordinary value. Users add their own to a copy.
class Registry {
 public:
  void add(OpDef op);
  const OpDef* find(std::string_view name) const;
  // Throws, with the nearest name, when there is none.
  const OpDef& at(std::string_view name) const;
  OpDef& edit(std::string_view name);
  const std::deque<OpDef>& all() const { return ops_; }

 private:
  std::deque<OpDef> ops_;  // addresses stay put: graphs point into it
};

}  // namespace trireme::ir
