#pragma once
#include <string>
#include <vector>

#include "trireme/passes/server.h"

namespace trireme::passes {

// Which part of the update is about parameters. Both sides of a server are made from the same module, so both find the
// same.
struct ServerSplit {
  explicit ServerSplit(const ir::Module& module);

  std::vector<bool> node;             // by node of the update: the servers run it
  std::vector<bool> state;            // by state: the servers keep it
  std::vector<bool> asked;            // by state: the servers keep it and workers read it
  std::vector<ir::StateId> belongs;   // by state that the servers keep: to that parameter; kNone: to none
  std::vector<std::string> results;   // outputs of the update that the servers make
  std::vector<ir::ValueId> resulted;  // their values
};

// A message between a worker and a server, each step.
struct ServerMessage {
  int key = 0;
  int server = 0;
  std::string of;      // the state, or the output
  std::int32_t about;  // which of the keys; kNone: none
  TensorType type;
  std::int64_t first = 0;  // rows of the state
  std::int64_t rows = 0;   // 0: all of it
};
struct ServerMessages {
  ServerMessages(const ir::Module& module, const ServerSplit& split, const ServerOptions& options);

  std::vector<ServerKey> keys;
  std::vector<ServerMessage> pushes;  // one for each key, then the loss to every server, where the module has it
  std::vector<ServerMessage> states;  // pulled
  std::vector<ServerMessage> results;
};

// Of a tensor some rows, as a key has them.
TensorType part_type(TensorType type, std::int64_t rows);

}  // namespace trireme::passes
