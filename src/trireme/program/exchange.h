#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// What a worker and one server send each other in a step: the server's fixed table of keys.
struct Exchange {
  struct Message {
    int key = 0;
    std::string of;
    TensorType type;
    friend bool operator==(const Message&, const Message&) = default;
  };
  std::vector<Message> pushes;
  std::vector<Message> states;             // pulled: states as the update leaves them
  std::vector<Message> results;            // pulled: outputs of the update
  bool each = false;                       // every worker's pushes are an update of their own
  std::optional<std::int64_t> bound = {};  // each: steps that a worker may be ahead of the slowest
  int workers = 1;

  // "sync", "async", or "ssp:S" within a bound of S steps.
  std::string pace() const;
  std::size_t pushed_bytes() const;
  std::size_t pulled_bytes() const;
};

// The table of the server whose rank is `place`, read off a worker's step. Throws unless everything pushed has a slot
// on the server for each of the `workers`, everything pulled is a state or an output there, of the same type, and
// `derive` (after which workers have what servers keep) pulls the same states under the same keys.
Exchange match(const Program& step, const Program& derive, const ir::Module& server, int place, int workers);

}  // namespace trireme::program
