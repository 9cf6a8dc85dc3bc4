#pragma once
#include <string>
#include <vector>

#include "trireme/passes/server.h"

namespace trireme::passes {

// A value that each worker computes from its own rows and pushes to a server, where replicas would have all-reduced it:
// a gradient, or its compressed form.
struct ServerPush {
  std::string of;         // the state, or the value that workers make
  ir::ValueId value;      // of the update graph
  std::int32_t decoder;   // the node that makes a term of the sum out of it; kNone: it is the term
  std::string parameter;  // whose gradient; empty: the loss
  bool made;              // by nodes of the update graph that workers run; otherwise it is a state
  bool term;              // of a sum over the workers; otherwise each of them has all of it, and one's counts
};

// An update graph, divided: workers run what makes the pushes, servers what follows, and workers again what is about
// states of their own.
struct ServerUpdate {
  std::string graph;
  std::vector<bool> before;           // by node: workers run it, and push what comes of it
  std::vector<bool> server;           // servers run it
  std::vector<bool> behind;           // workers run it, with what servers answered
  std::vector<ServerPush> pushes;     // of all parameters in the order of the states, then the loss, where there is one
  std::vector<std::string> results;   // what servers make and workers need: outputs of the update, and further values
  std::vector<ir::ValueId> resulted;  // their values
};

// Which part of the updates is about parameters. Both sides of a server are made from the same module, so both find the
// same.
struct ServerSplit {
  explicit ServerSplit(const ir::Module& module);

  std::vector<ServerUpdate> updates;  // "update" first
  std::vector<bool> state;            // by state: the servers keep it
  std::vector<bool> asked;            // by state: the servers keep it and workers read it
  std::vector<ir::StateId> belongs;   // by state that the servers keep: to that parameter; kNone: to none
  std::vector<bool> whole;            // by state: a parameter that no two servers may share

 private:
  void find_states(const ir::Module& module);
  void find_owners(const ir::Module& module);
  ServerUpdate divide(const ir::Module& module, const ir::Graph& graph) const;
  void find_asked(const ir::Module& module);
};

// A message between a worker and a server, each step.
struct ServerMessage {
  int key = 0;
  int server = 0;
  std::string of;      // the state, the value or the output
  std::int32_t about;  // which of the keys; kNone: none
  TensorType type;
  std::int64_t first = 0;  // rows of the state
  std::int64_t rows = 0;   // 0: all of it
  std::size_t push = 0;    // which of ServerUpdate::pushes
};
struct ServerMessages {
  // Of one of the updates.
  struct Table {
    std::vector<ServerMessage> pushes;  // one for each key, then the loss to every server, where the module has it
    std::vector<ServerMessage> results;
  };
  ServerMessages(const ir::Module& module, const ServerSplit& split, const ServerOptions& options);

  std::vector<ServerKey> keys;
  std::vector<ServerMessage> states;  // pulled
  std::vector<Table> updates;         // as ServerSplit::updates
};

// The type of one key of a tensor: `rows` of its rows. 0 stands for all of them.
TensorType part_type(TensorType type, std::int64_t rows);

}  // namespace trireme::passes
