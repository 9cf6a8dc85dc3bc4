#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/program/program.h"
#include "trireme/program/schedule/action.h"

namespace trireme::program {

bool is_gradient(ir::Phase phase);  // of inputs or of weights

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
  GraphRun(const ir::Module& module, const ir::Graph& g, int m, std::span<const Action> actions = {});

  Operand operand(ir::ValueId id) const;
  void settle(ir::ValueId id, const Operand& where);
  bool is_made(ir::ValueId id) const;
  // Whether a node that has not run yet reads it, or it is an output.
  bool wanted_later(ir::ValueId id) const;

  const ir::Graph& graph;
  int micro;
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
  std::vector<Operand> piece_of;                    // by value: the rows of a state that it is to become
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
