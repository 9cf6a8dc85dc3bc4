#pragma once
#include <cstdint>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// Which instructions are known to be done when another starts. A stream starts its instructions in order, each when the
// one before it is done, except that it does not wait for copies to and from the disk: those overlap with what follows
// on their stream and complete in any order, so only their own events show that they are done.
//
// The object is filled in program order: the waits of an instruction, then its start.
class HappensBefore {
 public:
  // `program` must outlive it. Streams must not change meanwhile; events may be added.
  explicit HappensBefore(const Program& program);

  // Instruction i, the next to start, waits for the event of `from`, which has started.
  void wait(std::size_t i, std::size_t from);
  void start(std::size_t i);

  // Whether `a` is known to be done when `b` starts, which has started or is the next to start.
  bool before(std::size_t a, std::size_t b) const;

 private:
  std::size_t stream_of(std::size_t i) const { return static_cast<std::size_t>(program_.instructions[i].stream); }
  std::int32_t& now(std::size_t stream, std::size_t other) { return now_[stream * streams_ + other]; }
  // First position in `stream` at whose start the disk copy is known to be done.
  std::int32_t& known_from(std::int32_t copy, std::size_t stream) {
    return known_from_[static_cast<std::size_t>(copy) * streams_ + stream];
  }
  void learn(std::size_t stream, std::int32_t copy);

  static constexpr std::int32_t kUnknown = -1;
  const Program& program_;
  std::size_t streams_;
  // By stream: how many instructions of each stream are known to be done, not counting on its disk copies; and for each
  // instruction, the same when it starts.
  std::vector<std::int32_t> now_;
  std::vector<std::int32_t> at_start_;
  std::vector<std::int32_t> position_;  // in its stream
  // A stream learns of disk copies in some order and forgets none, so what an instruction knows is a prefix of what its
  // stream ever learns, and one stream takes over from another only what is new.
  std::vector<std::int32_t> copy_;                  // by instruction: which disk copy it is, or kUnknown
  std::vector<std::vector<std::int32_t>> learned_;  // by stream
  std::vector<std::int32_t> learned_at_start_;      // by instruction: how many
  std::vector<std::int32_t> taken_over_;            // by stream and other stream: how many
  std::vector<std::int32_t> known_from_;
};

}  // namespace trireme::program
