#pragma once
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "trireme/program/program.h"
#include "trireme/program/schedule/action.h"

namespace trireme::program {

bool is_gradient(ir::Phase phase);  // of inputs or of weights

// The values of a program, as they are numbered, and what the states hold of them at the point that lowering has
// reached.
class Values {
 public:
  explicit Values(std::size_t states) : states_of_(states), held_(states) {
    std::iota(states_of_.begin(), states_of_.end(), 0);
    std::iota(held_.begin(), held_.end(), 0);
  }

  // A new one; with a state: its contents from when it is written there on.
  std::int32_t made(ir::StateId state = kNone) {
    states_of_.push_back(state);
    return static_cast<std::int32_t>(states_of_.size()) - 1;
  }
  std::int32_t held(ir::StateId state) const { return held_[ir::index(state)]; }
  void hold(ir::StateId state, std::int32_t value) { held_[ir::index(state)] = value; }
  std::vector<ir::StateId> take() { return std::move(states_of_); }

 private:
  std::vector<ir::StateId> states_of_;  // by value
  std::vector<std::int32_t> held_;      // by state
};

// One run of a graph, while it is lowered: where its values are, and what becomes of its writes. A micro-batch's lives
// across its actions.
struct GraphRun {
  // A write of a graph and how it is carried out.
  struct Write {
    ir::Write write;
    bool direct = false;  // the producing node may write the state's buffer itself
    bool done = false;
  };

  // `actions` are all of the program's, of which this micro-batch's count; none: the graph runs in one go.
  GraphRun(const ir::Module& module, const ir::Graph& g, int m, Values& all, std::span<const Action> actions = {});

  Operand operand(ir::ValueId id) const;
  void settle(ir::ValueId id, const Operand& where);
  // This run writes a state: what it has read of it before is what it held until now.
  void write(ir::StateId state, std::int32_t value);
  bool is_made(ir::ValueId id) const;
  // Whether a node that has not run yet reads it, or it is an output.
  bool wanted_later(ir::ValueId id) const;

  const ir::Graph& graph;
  int micro;
  Values& values;
  ir::Uses uses;
  std::vector<Action> action_of;       // by node
  std::vector<std::int32_t> position;  // by node: when it runs, relative to the others
  std::vector<bool> lowered;           // by node
  std::int32_t last_lowered = kNone;   // a node
  std::vector<ir::ValueId> read_of;    // by state
  std::vector<Write> writes;
  std::vector<std::vector<std::size_t>> writes_of;  // by value: indices into `writes`
  std::vector<BufferId> buffer_of;                  // by value
  std::vector<std::size_t> offset_of;               // by value: where it begins in its buffer
  std::vector<Place> place_of;                      // by value: and where from there on, by rank
  // By value: its number among the program's; kNone: not made, or what a state holds that this run has not written.
  std::vector<std::int32_t> number_of;
  std::vector<Operand> piece_of;  // by value: the rows of a state that it is to become
};

bool has_gradients(const ir::Graph& graph);
bool is_of(const Action& action, int micro);

// Refuses actions in an order that would give a micro-batch other contents of a state than the one before it leaves
// there, naming both. Sums that the graph does not read may be added in any order.
void check_state_order(const ir::Module& module, const ir::Graph& body, std::span<const Action> actions);

// The part of `whole` that belongs to this rank, as a collective or own_rows node cuts it.
Operand own_part(const ir::Mesh& mesh, const ir::Node& node, const Operand& whole, const TensorType& part);

// Decides which values are made where they are to stay, so that no copy of them is written: rows of a state that is
// assembled or gathered from them, all of a state that nobody reads any more, the sum that they are a contribution to.
void plan_direct_writes(const ir::Module& module, GraphRun& run);

}  // namespace trireme::program
