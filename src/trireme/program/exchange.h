#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// What a worker and a rank that answers its messages send each other in a step: the fixed table of keys of the latter.
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
  int place = 1;  // what the workers' messages call the rank (`peer`)

  // "sync", "async", or "ssp:S" within a bound of S steps.
  std::string pace() const;
  std::size_t pushed_bytes() const;
  std::size_t pulled_bytes() const;
};

// The table of the rank `place`, whose role has the module `there`, read off a worker's step. Throws unless everything
// pushed has a slot there for each of the `workers`, everything pulled is a state or an output there, of the same type,
// and `refresh` (after which workers have copies of its states) pulls the same states under the same keys. `slot` names
// the slot of a value that a worker pushes.
Exchange match(const Program& step, const Program& refresh, const ir::Module& there, int place, int workers,
               const std::function<std::string(const std::string& of, int worker)>& slot);

}  // namespace trireme::program
