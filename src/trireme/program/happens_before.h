#pragma once
#include <cstdint>
#include <vector>

#include "trireme/program/program.h"

namespace trireme::program {

// Which instructions are known to be done when another starts. A stream starts its instructions in order, each when the
// one before it is done, except that it does not wait for
//   - copies to and from the disk. They overlap with what follows on their stream and complete in any order, so only
//     their own events show that they are done;
//   - sends to other stages. Where GPUs share memory a send is done when its receiver has copied it, whatever its own
//     stream does meanwhile (comm/device/message.h). Receivers take the messages of a group in order, so a send is done
//     when its own event says so, or that of a later send of its group. Those of other groups say nothing of it, even
//     on the same stream.
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
  // First position in `stream` at whose start the transfer is known to be done.
  std::int32_t& known_from(std::int32_t transfer, std::size_t stream) {
    return known_from_[static_cast<std::size_t>(transfer) * streams_ + stream];
  }
  // That it is done, and so are those of its group before it.
  void learn(std::size_t stream, std::int32_t transfer);

  static constexpr std::int32_t kUnknown = -1;
  const Program& program_;
  std::size_t streams_;
  // By stream: how many instructions of each stream are known to be done, not counting on its transfers; and for each
  // instruction, the same when it starts.
  std::vector<std::int32_t> now_;
  std::vector<std::int32_t> at_start_;
  std::vector<std::int32_t> position_;  // in its stream
  // Transfers are what streams do not wait for: disk copies and sends. A stream learns of them in some order and
  // forgets none, so what an instruction knows is a prefix of what its stream ever learns, and one stream takes over
  // from another only what is new.
  std::vector<std::int32_t> transfer_;              // by instruction: which transfer it is, or kUnknown
  std::vector<std::int32_t> earlier_;               // by transfer: the one before it of its group, or kUnknown
  std::vector<std::vector<std::int32_t>> learned_;  // by stream
  std::vector<std::int32_t> learned_at_start_;      // by instruction: how many
  std::vector<std::int32_t> taken_over_;            // by stream and other stream: how many
  std::vector<std::int32_t> known_from_;
};

}  // namespace trireme::program
