#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trireme/core/shape.h"
#include "trireme/ir/attributes.h"
#include "trireme/ir/mesh.h"
#include "trireme/ir/op_def.h"
#include "trireme/ir/sharding.h"

namespace trireme::ir {

using ValueId = std::int32_t;
using StateId = std::int32_t;
inline constexpr std::int32_t kNone = -1;  // an absent optional operand

// Ids count from 0 and name places in vectors.
inline std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }

// Which part of a micro-batch a node belongs to. Clean-up and fusion never cross phases or stages.
enum class Phase : std::uint8_t { forward, input_gradient, weight_gradient, update };
const char* name_of(Phase phase);

enum class Category : std::uint8_t { weights, gradients, optimizer, statistics, scalars, cache };
const char* name_of(Category category);

// What a state variable holds before the first step; a pure function of the seed, the name and the element's index.
struct Init {
  enum class Kind : std::uint8_t { zeros, constant, normal, uniform, derived };
  Kind kind = Kind::zeros;
  double a = 0;  // constant: the value; normal: the deviation; uniform: the bound

  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  friend bool operator==(const Init&, const Init&) = default;
};

// What outlives a micro-batch.
struct State {
  std::string name;  // "blocks.3.attn.qkv.weight"
  TensorType type;   // of all of it; once it is sharded, of what each rank stores
  Category category = Category::weights;
  Init init;
  bool saved = true;         // part of a checkpoint
  bool trained = false;      // a parameter: has a gradient and an optimizer
  bool decayed = false;      // weight decay applies
  bool sparse = false;       // zero in many places, or will be: a checkpoint stores it without zeros
  bool step_local = false;   // gradients, losses: written before read in each step, dead between steps
  std::string derived_from;  // a low-precision copy of that state: rewritten after each update, never saved
  int tier = 0;              // 0 device, 1 host, 2 disk
  // Storage in shards (ir/slice.h): by dimension of the global shape `whole` the axes that shard it. A rank has a block
  // of the tensor, the last of which may reach beyond its end.
  Sharding sharding;
  Shape whole;
  // Where a rank stores some of its block's rows (Shape::as_rows): the block's shape, the axes over which its rows are
  // sharded, and the row at which this module's begin.
  Shape block;
  std::vector<std::string> row_axes;
  std::int64_t first_row = 0;
  std::int64_t room = 0;  // elements there is storage for, where that is more than the type has

  const Shape& global_shape() const { return whole.rank() > 0 ? whole : type.shape; }
  std::size_t storage_bytes() const;
  friend bool operator==(const State&, const State&) = default;
};

struct ValueInfo {
  enum class Kind : std::uint8_t { node, input, state };
  std::string name;  // unique in its graph
  TensorType type;
  Kind kind = Kind::node;
  StateId state = kNone;  // kind == state
  Sharding sharding;
  friend bool operator==(const ValueInfo&, const ValueInfo&) = default;
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;  // kNone where an optional operand is absent
  std::vector<ValueId> outputs;
  Attributes attributes;
  Phase phase = Phase::forward;
  std::int32_t stage = 0;
  bool barrier = false;  // recomputed: clean-up leaves it alone
  bool on_host = false;  // on an accelerator: done by the host's cores, on values in the host's memory
  friend bool operator==(const Node&, const Node&) = default;
};

// A state variable's new contents. Reads in the same graph see the old ones.
struct Write {
  enum class Mode : std::uint8_t { set, add };  // add: summed over the micro-batches of a step
  StateId state = kNone;
  ValueId value = kNone;
  Mode mode = Mode::set;
  friend bool operator==(const Write&, const Write&) = default;
};

struct Output {
  std::string name;
  ValueId value = kNone;
  friend bool operator==(const Output&, const Output&) = default;
};

class Module;

// The characters that a name may have: letters, digits and any of _ . / # - with ':' only between two of them. Others
// would not come back from the text form.
bool name_character(char c);
// Throws unless `name` can be printed and parsed; `what` is for the message ("state", "value").
void check_name(std::string_view name, const char* what);
// Throws on a negative extent and on more elements than any machine holds.
void check_extents(const TensorType& type);
// Throws unless a node of `op` may have these operands and attributes; attributes left out get their defaults.
void check_operands(const OpDef& op, std::span<const ValueId> operands);
void complete_attributes(const OpDef& op, Attributes& attributes);

// Nodes in an order that respects their data. Passes edit `nodes` freely and append values; ids of values stay valid.
class Graph {
 public:
  std::string name;
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;
  std::vector<ValueId> inputs;
  std::vector<Write> writes;
  std::vector<Output> outputs;

  const TensorType& type(ValueId value) const;
  const ValueInfo& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  ValueInfo& value(ValueId id) { return values[static_cast<std::size_t>(id)]; }

  ValueId add_input(std::string name, TensorType type);
  // The input of that name, added where there is none.
  ValueId find_or_add_input(const std::string& name, const TensorType& type);
  // The value that reads `state`; one per state and graph.
  ValueId read(const Module& module, StateId state);
  // A fresh value named after `name` ("name", "name#1", …).
  ValueId new_value(const std::string& name, TensorType type);
  // Gives values other names, all at once; the result must be unique.
  void rename(std::span<const ValueId> ids, std::span<const std::string> names);

  // Checks operands and attributes, fills in defaults, infers the outputs and appends the node. Errors name the op and
  // `name`.
  std::vector<ValueId> add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name,
                           Phase phase = Phase::forward, std::int32_t stage = 0);
  // As `add`, without appending: for passes that insert elsewhere.
  Node make_node(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name,
                 Phase phase, std::int32_t stage);
  // Changes a node's attributes and gives it any outputs that its op infers beyond those it has.
  void extend(Node& node, const Attributes& changed);

  Types input_types(const Node& node) const;
  Types output_types(const Node& node) const;

  std::optional<ValueId> find_input(std::string_view name) const;
  std::optional<ValueId> find_output(std::string_view name) const;

  // Drops values nobody mentions and renumbers the rest in order of appearance, so that equal graphs compare equal.
  void compact();

  friend bool operator==(const Graph& a, const Graph& b);

 private:
  void learn_names();
  ValueId append(const std::string& label, TensorType type);

  std::unordered_set<std::string> names_;       // of all values, to keep them unique; follows from `values`
  std::unordered_map<StateId, ValueId> reads_;  // where a state's value was last found: looked at before it is trusted
};

// For each value: the node that makes it (or -1) and the nodes that read it.
struct Uses {
  explicit Uses(const Graph& graph);
  std::vector<std::int32_t> producer;
  std::vector<std::vector<std::int32_t>> consumers;
  std::vector<bool> escapes;  // written to a state or an output
};

// The graphs of a step over one set of state variables.
class Module {
 public:
  const Registry* registry = nullptr;
  Mesh mesh;
  std::vector<State> states;
  std::vector<Graph> graphs;  // "micro" (one micro-batch: forward and backward), "update", "init", …

  StateId add_state(State state);
  StateId find_state(std::string_view name) const;  // kNone when there is none
  State& state(StateId id) { return states[static_cast<std::size_t>(id)]; }
  const State& state(StateId id) const { return states[static_cast<std::size_t>(id)]; }

  Graph& graph(std::string_view name);
  const Graph& graph(std::string_view name) const;
  bool has_graph(std::string_view name) const;
  Graph& add_graph(std::string name);

 private:
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  // As add_state last saw them; follows from `states`.
  std::unordered_map<std::string, StateId, NameHash, std::equal_to<>> ids_;
  const State* known_states_ = nullptr;
};

bool equal(const Module& a, const Module& b);

}  // namespace trireme::ir
