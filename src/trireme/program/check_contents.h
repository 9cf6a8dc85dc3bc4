#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/program/happens_before.h"
#include "trireme/program/program.h"

namespace trireme::program {

// What the bytes of every tier hold while a program is walked through in order, on all ranks at once: a shard is
// followed as the bytes that it has on rank 0, which are `stride` further on with each rank. Throws, naming the
// instructions, where what is read was not written, was written over (by another buffer's contents, or by another value
// in the same buffer), or is touched without an order; and where a state is given what is not its contents.
class Contents {
 public:
  // Both must outlive it. The states' buffers hold their values; they must not overlap.
  Contents(const Program& program, const HappensBefore& order);

  void read(std::size_t i, const Operand& o);
  void write(std::size_t i, const Operand& o);

  // When all instructions are through: what is read afterwards is there for every rank.
  void check_output(const NamedOutput& output);
  void check_states() const;

  std::size_t conflicts_ordered() const { return conflicts_ordered_; }

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  struct Shard {
    std::size_t begin;
    std::size_t end;
    std::int32_t value;
    std::int32_t writer;
  };
  struct Reader {
    std::int32_t instruction;
    std::size_t count;  // itself and those that were done when it started
  };
  // The bytes from its key in the map on, with the last instruction that wrote them and the readers since.
  struct Segment {
    std::size_t end = 0;
    std::int32_t writer = kNone;  // kPersistent: state from before the program; kNone: never written
    BufferId buffer = kNone;      // whose contents they are,
    std::int32_t value = kNone;   // and which value of it, where no shard was written since
    std::int32_t valued = kNone;  // by this instruction
    bool whole = false;           // every rank has written all of it
    std::vector<Reader> readers;
    // What each rank has written since at its own place, as rank 0 has it, sorted. The rest is what it was.
    Place place = {};
    std::vector<Shard> shards;
  };
  static constexpr std::int32_t kPersistent = -2;
  static constexpr std::int32_t kSame = -3;
  using Segments = std::map<std::size_t, Segment>;

  const Buffer& buffer(const Operand& o) const { return p_.buffers[static_cast<std::size_t>(o.buffer)]; }
  const std::string& name(const Operand& o) const { return buffer(o).name; }
  Segments& segments(int tier) { return segments_[static_cast<std::size_t>(tier)]; }
  // f(where it begins, segment) for the segments of a range; or for those that some rank touches of `bytes` of `o`.
  template <class F>
  void for_each(int tier, Range range, F&& f);
  template <class F>
  void for_each_touched(const Operand& o, std::size_t bytes, F&& f);

  // Why a segment that was written does not have what a reader of `o` reads of it; empty: it has.
  std::string fault(const Segment& segment, std::size_t begin, const Operand& o) const;
  // Whether every rank has written all that a reader of `o` reads of the segment, which holds the same buffer.
  bool complete(const Segment& segment, std::size_t begin, const Operand& o) const;
  // The instruction that has put another value than the one of `o`, of which it holds all, into the segment; kSame:
  // none.
  std::int32_t other_value(const Segment& segment, std::size_t begin, const Operand& o) const;
  bool is_padding(std::size_t begin, const Operand& o) const;
  // Throws where a state is written that `o` is not the contents of.
  void declared(std::size_t i, const Operand& o) const;
  void ordered(std::size_t a, std::size_t b) const;
  // Instruction i, which must come after all that has touched the segment, becomes its writer.
  void follow(std::size_t i, Segment& segment);
  // By buffer: without the padding of what is sharded evenly, which ranks touch as the end of their shards alone. All
  // of it, where nothing is touched but shards.
  std::vector<std::size_t> value_bytes() const;
  static void add_shard(std::size_t i, Segment& segment, const Operand& o, Range written, std::size_t end);
  // By state: the value that it is left with.
  std::vector<std::int32_t> last_values() const;

  const Program& p_;
  const HappensBefore& order_;
  std::vector<std::size_t> value_bytes_;
  std::array<Segments, kTiers> segments_;
  std::size_t conflicts_ordered_ = 0;
};

}  // namespace trireme::program
