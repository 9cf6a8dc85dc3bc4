#include "trireme/program/check.h"

#include <algorithm>
#include <map>

#include "trireme/core/error.h"

namespace trireme::program {
namespace {

std::string describe(const Program& program, std::size_t i) {
  const Instruction& instruction = program.instructions[i];
  const char* what = instruction.kind == Instruction::Kind::input ? "input" : instruction.kind == Instruction::Kind::copy ? "copy" : instruction.op->name.c_str();
  return fmt::format("instruction {} ({} '{}', micro-batch {})", i, what, instruction.name, instruction.micro);
}

struct Range {
  std::size_t begin;
  std::size_t end;
};

class Checker {
 public:
  explicit Checker(const Program& program) : p_(program) {}

  CheckReport run() {
    order();
    check_places();
    walk();
    report_.instructions = p_.instructions.size();
    report_.buffers = p_.buffers.size();
    return report_;
  }

 private:
  Range range(const Operand& o) const {
    const Buffer& b = p_.buffers[static_cast<std::size_t>(o.buffer)];
    return {b.offset, b.offset + o.type.bytes()};
  }

  // clock_[i][s]: how many instructions of stream s are known to be done when i starts, in stream order.
  void order() {
    const auto streams = static_cast<std::size_t>(p_.streams());
    std::vector<std::int32_t> recorder(static_cast<std::size_t>(p_.events()), kNone);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const std::int32_t event = p_.instructions[i].records;
      if (event == kNone) continue;
      if (recorder[static_cast<std::size_t>(event)] != kNone)
        fail("event {} is recorded by {} and by {}", event, describe(p_, static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)])), describe(p_, i));
      recorder[static_cast<std::size_t>(event)] = static_cast<std::int32_t>(i);
    }
    clock_.assign(p_.instructions.size(), std::vector<std::int32_t>(streams, 0));
    position_.assign(p_.instructions.size(), 0);
    std::vector<std::vector<std::int32_t>> now(streams, std::vector<std::int32_t>(streams, 0));
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      auto& stream = now[static_cast<std::size_t>(instruction.stream)];
      for (const std::int32_t event : instruction.waits) {
        const bool known = event >= 0 && static_cast<std::size_t>(event) < recorder.size() && recorder[static_cast<std::size_t>(event)] != kNone;
        if (!known) fail("{} waits for event {}, which nothing records", describe(p_, i), event);
        const auto from = static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)]);
        // Programs are issued in order: a wait for a later record would hold up the stream that must issue it.
        if (from >= i) fail("{} waits for event {}, which only {} records: they would wait for each other", describe(p_, i), event, describe(p_, from));
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

  void check_places() const {
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      std::vector<Range> written;
      const auto inside = [&](const Operand& o) {
        if (o.buffer == kNone) return;
        const Buffer& b = p_.buffers[static_cast<std::size_t>(o.buffer)];
        if (o.type.bytes() > b.bytes || range(o).end > p_.arena_bytes)
          fail("{} reaches beyond buffer '{}' ({} of {} bytes)", describe(p_, i), b.name, o.type.bytes(), b.bytes);
      };
      for (const Operand& o : instruction.inputs) inside(o);
      inside(instruction.workspace);
      for (const Operand& o : instruction.outputs) {
        inside(o);
        written.push_back(range(o));
      }
      if (instruction.workspace.buffer != kNone) written.push_back(range(instruction.workspace));
      std::sort(written.begin(), written.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
      for (std::size_t k = 1; k < written.size(); ++k)
        if (written[k].begin < written[k - 1].end) fail("{} writes the same bytes through two outputs", describe(p_, i));
    }
  }

  // Bytes of the arena as disjoint segments, each with its last writer and the readers since.
  struct Segment {
    std::size_t end;
    std::int32_t writer;  // kPersistent: state from before the program; kNone: never written
    BufferId buffer;
    std::vector<std::int32_t> readers;
  };
  static constexpr std::int32_t kPersistent = -2;

  void cut(std::size_t at) {
    auto it = segments_.upper_bound(at);
    if (it == segments_.begin()) return;
    --it;
    if (it->first == at || at >= it->second.end) return;
    Segment right = it->second;
    it->second.end = at;
    segments_.emplace(at, std::move(right));
  }

  void ordered(std::size_t a, std::size_t b) {
    if (a == b) return;
    if (!before(a, b)) fail("{} and {} touch the same bytes, but nothing orders them", describe(p_, a), describe(p_, b));
    ++report_.conflicts_ordered;
  }

  void read(std::size_t i, const Operand& o) {
    if (o.buffer == kNone || o.type.bytes() == 0) return;
    const Range r = range(o);
    cut(r.begin);
    cut(r.end);
    for (auto it = segments_.lower_bound(r.begin); it != segments_.end() && it->first < r.end; ++it) {
      Segment& segment = it->second;
      const std::string& name = p_.buffers[static_cast<std::size_t>(o.buffer)].name;
      if (segment.writer == kNone) fail("{} reads '{}' before anything is written there", describe(p_, i), name);
      if (segment.buffer != o.buffer)
        fail("{} reads '{}', but its bytes now hold '{}'", describe(p_, i), name, p_.buffers[static_cast<std::size_t>(segment.buffer)].name);
      if (segment.writer != kPersistent) ordered(static_cast<std::size_t>(segment.writer), i);
      segment.readers.push_back(static_cast<std::int32_t>(i));
    }
  }

  void write(std::size_t i, const Operand& o) {
    if (o.buffer == kNone || o.type.bytes() == 0) return;
    const Range r = range(o);
    cut(r.begin);
    cut(r.end);
    auto it = segments_.lower_bound(r.begin);
    while (it != segments_.end() && it->first < r.end) {
      if (it->second.writer >= 0) ordered(static_cast<std::size_t>(it->second.writer), i);
      for (const std::int32_t reader : it->second.readers) ordered(static_cast<std::size_t>(reader), i);
      it = segments_.erase(it);
    }
    segments_.emplace(r.begin, Segment{r.end, static_cast<std::int32_t>(i), o.buffer, {}});
  }

  void walk() {
    segments_.emplace(0, Segment{std::max<std::size_t>(p_.arena_bytes, 1), kNone, kNone, {}});
    for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
      const Buffer& buffer = p_.buffers[b];
      if (buffer.state == kNone || buffer.bytes == 0) continue;
      cut(buffer.offset);
      cut(buffer.offset + buffer.bytes);
      auto it = segments_.lower_bound(buffer.offset);
      if (it->second.writer != kNone) fail("states '{}' and '{}' overlap", buffer.name, p_.buffers[static_cast<std::size_t>(it->second.buffer)].name);
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
      if (p_.instructions.empty()) continue;
      const Range r = range(output.operand);
      cut(r.begin);
      cut(r.end);
      for (auto it = segments_.lower_bound(r.begin); it != segments_.end() && it->first < r.end; ++it)
        if (it->second.writer == kNone || it->second.buffer != output.operand.buffer) fail("output '{}' does not survive to the end of the program", output.name);
    }
  }

  const Program& p_;
  CheckReport report_;
  std::vector<std::vector<std::int32_t>> clock_;
  std::vector<std::int32_t> position_;
  std::map<std::size_t, Segment> segments_;
};

}  // namespace

CheckReport check(const Program& program) { return Checker(program).run(); }

}  // namespace trireme::program
