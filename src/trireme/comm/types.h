#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "trireme/core/error.h"

namespace trireme::comm {

// How values of several ranks become one. `mean` is the sum divided by the number of ranks (integers: towards zero).
// `max` and `min` give NaN where any rank has one. Integer sums and products wrap.
enum class Reduce : std::uint8_t { sum, mean, max, min, prod };

// How a collective moves its bytes (docs/communication.md has pictures). `native` is the transport's own; `automatic`
// is chosen by size and ranks (tuning.h). Reduce-scatter and all-gather know native, parallel, ring and recursive; the
// other names mean ring there.
enum class Algorithm : std::uint8_t { automatic, native, sequential, parallel, ring, recursive, tree };

enum class Collective : std::uint8_t {
  barrier,
  broadcast,
  scatter,
  gather,
  reduce,
  all_to_all,
  all_reduce,
  reduce_scatter,
  all_gather,
  exchange,
  message,
  split
};

const char* name_of(Reduce reduce);
const char* name_of(Algorithm algorithm);  // `automatic` is "auto", as in configurations
const char* name_of(Collective collective);
Algorithm parse_algorithm(std::string_view text);  // refuses, naming the nearest

struct Segment {
  void* data = nullptr;
  std::int64_t count = 0;  // elements
};

// A tensor of `count` elements cut into one slice of `slice_count` per rank: rank r owns [r * slice_count,
// min((r + 1) * slice_count, count)). The last slices may be short or empty; what is missing in `slice` is zeros.
// `slice` has room for slice_count elements. It may be `whole` + r * slice_count when all of it lies inside `whole`;
// otherwise the two do not overlap.
struct Cut {
  void* whole = nullptr;
  void* slice = nullptr;
  std::int64_t count = 0;
  std::int64_t slice_count = 0;
};

// What a rank exchanges with one other: `out` goes to it and `in` comes from it. Either may be empty, and the other
// rank expects as many bytes the other way round.
struct Swap {
  int peer = 0;
  std::span<const std::byte> out = {};
  std::span<std::byte> in = {};
};

struct Options {
  Algorithm algorithm = Algorithm::automatic;
  // At least scratch_bytes() (plan.h), or empty: then the call allocates what it needs. Aligned to 64 bytes.
  std::span<std::byte> scratch = {};
  // Named in errors: the tensor, the bucket.
  std::string_view name = {};
};

// What one rank did. A step is a round in which it waited for messages, however many at once. Bytes that `native` moves
// without messages count too: those that other ranks read from this one's memory or it wrote into theirs.
struct Counters {
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;  // sent
  std::uint64_t sent = 0;      // bytes
  std::uint64_t received = 0;  // bytes
};

// Thrown by every blocked or later call of every rank once one of them has called abort(), timed out or died.
class Aborted : public Error {
 public:
  explicit Aborted(std::string message) : Error(Error::Kind::failure, std::move(message)) {}
};

}  // namespace trireme::comm
