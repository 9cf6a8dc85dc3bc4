#include "trireme/program/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "trireme/core/error.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

struct Range {
  std::size_t begin;
  std::size_t end;
};

class Checker {
 public:
  explicit Checker(const Program& program) : p_(program) {}

  CheckReport run() {
    check_places();
    order();
    walk();
    report_.instructions = p_.instructions.size();
    report_.buffers = p_.buffers.size();
    return report_;
  }

 private:
  Range range(const Operand& o) const {
    const std::size_t begin = buffer(o).offset + o.offset;
    return {begin, begin + o.extent()};
  }

  const Buffer& buffer(const Operand& o) const { return p_.buffers[static_cast<std::size_t>(o.buffer)]; }

  // clock_[i][s]: how many instructions of stream s are known to be done when i starts, in stream order.
  void order() {
    const auto streams = static_cast<std::size_t>(p_.streams());
    std::vector<std::int32_t> recorder(static_cast<std::size_t>(p_.events()), kNone);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const std::int32_t event = p_.instructions[i].records;
      if (event == kNone) continue;
      if (recorder[static_cast<std::size_t>(event)] != kNone)
        fail("event {} is recorded by {} and by {}", event,
             describe(p_, static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)])), describe(p_, i));
      recorder[static_cast<std::size_t>(event)] = static_cast<std::int32_t>(i);
    }
    clock_.assign(p_.instructions.size(), std::vector<std::int32_t>(streams, 0));
    position_.assign(p_.instructions.size(), 0);
    std::vector<std::vector<std::int32_t>> now(streams, std::vector<std::int32_t>(streams, 0));
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      auto& stream = now[static_cast<std::size_t>(instruction.stream)];
      for (const std::int32_t event : instruction.waits) {
        const bool known = event >= 0 && static_cast<std::size_t>(event) < recorder.size() &&
                           recorder[static_cast<std::size_t>(event)] != kNone;
        if (!known) fail("{} waits for event {}, which nothing records", describe(p_, i), event);
        const auto from = static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)]);
        // Programs are issued in order: a wait for a later record would hold up the stream that must issue it.
        if (from >= i)
          fail("{} waits for event {}, which only {} records: they would wait for each other", describe(p_, i), event,
               describe(p_, from));
        for (std::size_t s = 0; s < streams; ++s) stream[s] = std::max(stream[s], clock_[from][s]);
        const auto from_stream = static_cast<std::size_t>(p_.instructions[from].stream);
        stream[from_stream] = std::max(stream[from_stream], position_[from] + 1);
      }
      clock_[i] = stream;
      position_[i] = stream[static_cast<std::size_t>(instruction.stream)];
      ++stream[static_cast<std::size_t>(instruction.stream)];
    }
  }

  bool before(std::size_t a, std::size_t b) const {
    return clock_[b][static_cast<std::size_t>(p_.instructions[a].stream)] > position_[a];
  }

  // Ranks share the program, so they meet in the same order if one stream issues all of them.
  void check_collective(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    if (comm_stream_ != kNone && comm_stream_ != instruction.stream)
      fail("{} is on stream {}, and another collective on stream {}: ranks might not meet in one order",
           describe(p_, i), instruction.stream, comm_stream_);
    comm_stream_ = instruction.stream;
    if (instruction.kind != Instruction::Kind::collective) return check_message(i);
    const std::string& axis = instruction.attributes.text("axis");
    const std::int64_t parts = instruction.attributes.integer("parts");
    if (parts != p_.mesh.size_of(axis))
      fail("{} is for {} ranks along {}, the mesh '{}' has {}", describe(p_, i), parts, axis, p_.mesh.str(),
           p_.mesh.size_of(axis));
    ++report_.collectives;
  }

  void check_message(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    const bool pulls = instruction.kind == Instruction::Kind::pull;
    if (pulls)
      pulled_ = static_cast<std::int32_t>(i);
    else if (pulled_ != kNone)
      fail("{} comes after {}, whose answer may need it: they would wait for each other", describe(p_, i),
           describe(p_, static_cast<std::size_t>(pulled_)));
    const auto [known, fresh] = messages_.emplace(
        std::tuple(pulls, instruction.attributes.integer("peer"), instruction.attributes.integer("key")), i);
    if (!fresh) fail("{} and {} have the same key", describe(p_, known->second), describe(p_, i));
    ++report_.messages;
  }

  void check_places() {
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      if (instruction.stream < 0) fail("{} is on stream {}", describe(p_, i), instruction.stream);
      if (instruction.communicates()) check_collective(i);
      if (instruction.on_host) check_host_launch(i);
      for (const Operand& o : instruction.inputs) inside(i, o);
      for (const Operand& o : instruction.outputs) inside(i, o);
      inside(i, instruction.workspace);
      check_tiers(i);
      check_overlaps(i);
    }
  }

  void inside(std::size_t i, const Operand& o) const {
    if (o.buffer == kNone) return;
    if (o.buffer < 0 || static_cast<std::size_t>(o.buffer) >= p_.buffers.size())
      fail("{} names buffer {}, which does not exist", describe(p_, i), o.buffer);
    const Buffer& b = buffer(o);
    const bool moves = p_.instructions[i].moves();
    std::size_t alignment = moves ? b.alignment : kAlignment;
    if (o.place.axis != kNone) alignment = size_of(o.type.dtype);
    if (range(o).begin % alignment != 0)
      fail("{} uses buffer '{}' at offset {}, which is not aligned", describe(p_, i), b.name, range(o).begin);
    const std::size_t touched = o.offset + (moves ? b.moved(o.extent()) : o.extent());
    if (touched > b.bytes || b.offset + touched > p_.bytes_in(b.tier))
      fail("{} reaches beyond buffer '{}' ({} of {} bytes)", describe(p_, i), b.name, touched, b.bytes);
  }

  // Only stores and loads reach other tiers, each from one to the other, and launches on the host, which stay there.
  void check_tiers(std::size_t i) const {
    const Instruction& instruction = p_.instructions[i];
    const auto in = [&](const Operand& o, bool device) {
      if (o.buffer == kNone) return true;
      return instruction.on_host ? buffer(o).tier == kHostTier : (buffer(o).tier == 0) == device;
    };
    bool right = in(instruction.workspace, true);
    for (const Operand& o : instruction.inputs) right = right && in(o, instruction.kind != Instruction::Kind::load);
    for (const Operand& o : instruction.outputs) right = right && in(o, instruction.kind != Instruction::Kind::store);
    if (!right) fail("{} reads or writes in the wrong memory tier", describe(p_, i));
    if (instruction.moves()) check_pages(i);
  }

  // The disk knows pages alone.
  void check_pages(std::size_t i) const {
    const Operand& from = p_.instructions[i].inputs.front();
    const Operand& to = p_.instructions[i].outputs.front();
    if (buffer(from).tier != kDiskTier && buffer(to).tier != kDiskTier) return;
    for (const Operand* o : {&from, &to})
      if (buffer(*o).alignment != kPage)
        fail("{} moves '{}', which does not lie on pages, to or from the disk", describe(p_, i), name(*o));
  }

  // The host's cores do one launch after the other.
  void check_host_launch(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    if (instruction.kind != Instruction::Kind::launch) fail("{} cannot be done on the host", describe(p_, i));
    if (host_stream_ != kNone && host_stream_ != instruction.stream)
      fail("{} is on stream {}, and another launch on the host on stream {}: they would meet", describe(p_, i),
           instruction.stream, host_stream_);
    host_stream_ = instruction.stream;
  }

  // What one instruction writes must not overlap, and may lie over what it reads only where its op works in place.
  void check_overlaps(std::size_t i) const {
    const Instruction& instruction = p_.instructions[i];
    std::vector<Operand> written = instruction.outputs;
    written.push_back(instruction.workspace);
    for (std::size_t a = 0; a < written.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b)
        if (overlap(written[a], written[b])) fail("{} writes the same bytes through two outputs", describe(p_, i));
      for (std::size_t in = 0; in < instruction.inputs.size(); ++in)
        if (overlap(written[a], instruction.inputs[in]) && !in_place(instruction, a, in))
          fail("{} writes '{}' over its own input '{}'", describe(p_, i), name(written[a]),
               name(instruction.inputs[in]));
    }
  }

  bool overlap(const Operand& a, const Operand& b) const {
    if (a.buffer == kNone || b.buffer == kNone) return false;
    if (buffer(a).tier != buffer(b).tier) return false;
    const Range x = range(a);
    const Range y = range(b);
    return x.begin < y.end && y.begin < x.end;
  }

  static bool in_place(const Instruction& instruction, std::size_t output, std::size_t input) {
    if (instruction.op == nullptr || output >= instruction.outputs.size()) return false;
    const Operand& to = instruction.outputs[output];
    const Operand& from = instruction.inputs[input];
    if (to.buffer != from.buffer || to.offset != from.offset) return false;
    // Of parts and wholes one lies within the other, where the part belongs.
    if (instruction.kind == Instruction::Kind::collective && output == input) return true;
    return to.place == from.place &&
           instruction.op->traits.allows_in_place(static_cast<int>(output), static_cast<int>(input));
  }

  const std::string& name(const Operand& o) const { return p_.buffers[static_cast<std::size_t>(o.buffer)].name; }

  // Bytes of each tier as disjoint segments, each with its last writer and the readers since.
  struct Segment {
    std::size_t end;
    std::int32_t writer;  // kPersistent: state from before the program; kNone: never written
    BufferId buffer;
    std::vector<std::int32_t> readers;
  };
  static constexpr std::int32_t kPersistent = -2;

  using Segments = std::map<std::size_t, Segment>;
  Segments& segments(int tier) { return segments_[static_cast<std::size_t>(tier)]; }
  Segments& segments(const Operand& o) { return segments(buffer(o).tier); }

  static void cut(Segments& segments, std::size_t at) {
    auto it = segments.upper_bound(at);
    if (it == segments.begin()) return;
    --it;
    if (it->first == at || at >= it->second.end) return;
    Segment right = it->second;
    it->second.end = at;
    segments.emplace(at, std::move(right));
  }

  std::string overwritten(const Segment& segment) const {
    const std::string& holder = p_.buffers[static_cast<std::size_t>(segment.buffer)].name;
    if (segment.writer == kPersistent) return fmt::format("its bytes hold state '{}'", holder);
    return fmt::format("{} has written '{}' there", describe(p_, static_cast<std::size_t>(segment.writer)), holder);
  }

  void ordered(std::size_t a, std::size_t b) {
    if (a == b) return;
    if (!before(a, b))
      fail("{} and {} touch the same bytes, but nothing orders them", describe(p_, a), describe(p_, b));
    ++report_.conflicts_ordered;
  }

  void read(std::size_t i, const Operand& o) {
    if (o.buffer == kNone || o.type.bytes() == 0) return;
    const Range r = range(o);
    Segments& there = segments(o);
    cut(there, r.begin);
    cut(there, r.end);
    for (auto it = there.lower_bound(r.begin); it != there.end() && it->first < r.end; ++it) {
      Segment& segment = it->second;
      if (segment.writer == kNone) fail("{} reads '{}' before anything is written there", describe(p_, i), name(o));
      if (segment.buffer != o.buffer) fail("{} reads '{}', but {}", describe(p_, i), name(o), overwritten(segment));
      if (segment.writer != kPersistent) ordered(static_cast<std::size_t>(segment.writer), i);
      segment.readers.push_back(static_cast<std::int32_t>(i));
    }
  }

  void write(std::size_t i, const Operand& o) {
    if (o.buffer == kNone || o.type.bytes() == 0) return;
    Range r = range(o);
    if (p_.instructions[i].moves()) r.end = r.begin + buffer(o).moved(r.end - r.begin);
    Segments& there = segments(o);
    cut(there, r.begin);
    cut(there, r.end);
    auto it = there.lower_bound(r.begin);
    while (it != there.end() && it->first < r.end) {
      if (it->second.writer >= 0) ordered(static_cast<std::size_t>(it->second.writer), i);
      for (const std::int32_t reader : it->second.readers) ordered(static_cast<std::size_t>(reader), i);
      it = there.erase(it);
    }
    there.emplace(r.begin, Segment{r.end, static_cast<std::int32_t>(i), o.buffer, {}});
  }

  void walk() {
    for (int tier = 0; tier < kTiers; ++tier)
      segments(tier).emplace(0, Segment{std::max<std::size_t>(aligned(p_.bytes_in(tier), kPage), 1), kNone, kNone, {}});
    for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
      const Buffer& buffer = p_.buffers[b];
      if (buffer.state == kNone || buffer.bytes == 0) continue;
      Segments& there = segments(buffer.tier);
      cut(there, buffer.offset);
      cut(there, buffer.offset + buffer.bytes);
      auto it = there.lower_bound(buffer.offset);
      if (it->second.writer != kNone)
        fail("states '{}' and '{}' overlap", buffer.name, p_.buffers[static_cast<std::size_t>(it->second.buffer)].name);
      it->second.writer = kPersistent;
      it->second.buffer = static_cast<BufferId>(b);
    }
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      for (const Operand& o : instruction.inputs) read(i, o);
      if (instruction.accumulate) read(i, instruction.outputs.front());
      write(i, instruction.workspace);
      for (const Operand& o : instruction.outputs) write(i, o);
    }
    for (const NamedOutput& output : p_.outputs) {
      if (output.operand.buffer < 0 || static_cast<std::size_t>(output.operand.buffer) >= p_.buffers.size())
        fail("output '{}' of micro-batch {} has no buffer", output.name, output.micro);
      const Range r = range(output.operand);
      Segments& there = segments(output.operand);
      cut(there, r.begin);
      cut(there, r.end);
      for (auto it = there.lower_bound(r.begin); it != there.end() && it->first < r.end; ++it)
        if (it->second.writer == kNone)
          fail("output '{}' of micro-batch {} is never written", output.name, output.micro);
        else if (it->second.buffer != output.operand.buffer)
          fail("output '{}' of micro-batch {} does not survive: {}", output.name, output.micro,
               overwritten(it->second));
    }
  }

  const Program& p_;
  CheckReport report_;
  std::vector<std::vector<std::int32_t>> clock_;
  std::vector<std::int32_t> position_;
  std::array<Segments, kTiers> segments_;
  std::int32_t comm_stream_ = kNone;
  std::int32_t host_stream_ = kNone;
  std::int32_t pulled_ = kNone;                                                   // the last pull so far
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, std::size_t> messages_;  // pulled?, peer, key
};

}  // namespace

CheckReport check(const Program& program) { return Checker(program).run(); }

}  // namespace trireme::program
