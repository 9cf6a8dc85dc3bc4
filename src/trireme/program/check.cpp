#include "trireme/program/check.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "trireme/core/error.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/program/capture_regions.h"
#include "trireme/program/check_contents.h"
#include "trireme/program/happens_before.h"
#include "trireme/program/messages.h"
#include "trireme/program/print.h"
#include "trireme/program/stream_order.h"

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
    check_buffers();
    check_places();
    walk();
    for (std::size_t i = 0; i < p_.instructions.size(); ++i)
      if (p_.instructions[i].kind == Instruction::Kind::launch) check_types(i);
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

  // Persistent state comes first in every tier, nothing else lies there, and no two states share bytes.
  void check_buffers() {
    for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
      const Buffer& buffer = p_.buffers[b];
      if (buffer.tier < 0 || buffer.tier >= kTiers) fail("buffer '{}' is in tier {}", buffer.name, buffer.tier);
      if (buffer.state == kNone || buffer.bytes == 0) continue;
      const std::size_t end = std::min(p_.state_bytes_in(buffer.tier), p_.bytes_in(buffer.tier));
      if (buffer.bytes > end || buffer.offset > end - buffer.bytes)
        fail("state '{}' ends at byte {} of the {}'s memory, where persistent state ends at {}", buffer.name,
             buffer.offset + buffer.bytes, tier_name(buffer.tier), end);
      states_[static_cast<std::size_t>(buffer.tier)].push_back(&buffer);
    }
    for (std::vector<const Buffer*>& states : states_) {
      std::stable_sort(states.begin(), states.end(),
                       [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
      for (std::size_t s = 1; s < states.size(); ++s)
        if (states[s]->offset < states[s - 1]->offset + states[s - 1]->bytes)
          fail("states '{}' and '{}' overlap", states[s]->name, states[s - 1]->name);
    }
    for (const Buffer& buffer : p_.buffers)
      if (buffer.state == kNone && buffer.bytes > 0 && buffer.offset < p_.state_bytes_in(buffer.tier))
        fail("buffer '{}' lies {}, and is no state", buffer.name, state_under(buffer));
  }

  // What a buffer that is no state lies over.
  std::string state_under(const Buffer& buffer) const {
    for (const Buffer* state : states_[static_cast<std::size_t>(buffer.tier)])
      if (state->offset < buffer.offset + buffer.bytes && buffer.offset < state->offset + state->bytes)
        return fmt::format("over state '{}'", state->name);
    return fmt::format("at byte {} of the {}'s memory, among the persistent state", buffer.offset,
                       tier_name(buffer.tier));
  }

  HappensBefore order() const {
    std::vector<std::int32_t> recorder(static_cast<std::size_t>(p_.events()), kNone);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const std::int32_t event = p_.instructions[i].records;
      if (event == kNone) continue;
      if (recorder[static_cast<std::size_t>(event)] != kNone)
        fail("event {} is recorded by {} and by {}", event,
             describe(p_, static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)])), describe(p_, i));
      recorder[static_cast<std::size_t>(event)] = static_cast<std::int32_t>(i);
    }
    HappensBefore order(p_);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      for (const std::int32_t event : p_.instructions[i].waits) {
        const bool known =
            static_cast<std::size_t>(event) < recorder.size() && recorder[static_cast<std::size_t>(event)] != kNone;
        if (!known) fail("{} waits for event {}, which nothing records", describe(p_, i), event);
        const auto from = static_cast<std::size_t>(recorder[static_cast<std::size_t>(event)]);
        // Programs are issued in order: a wait for a later record would hold up the stream that must issue it.
        if (from >= i)
          fail("{} waits for event {}, which only {} records: they would wait for each other", describe(p_, i), event,
               describe(p_, from));
        order.wait(i, from);
      }
      order.start(i);
    }
    return order;
  }

  // Ranks share the program, so they meet in the same order if one stream issues all collectives of a group. (That
  // those of several groups do not wait for each other in a circle is check_together's to prove.)
  void check_collective(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    if (instruction.between_stages()) return check_stage_message(i);
    const bool is_message = instruction.kind != Instruction::Kind::collective;
    const std::string axis = is_message ? "" : instruction.attributes.text("axis");
    const std::int32_t known = collective_streams_.emplace(axis, instruction.stream).first->second;
    if (known != instruction.stream)
      fail("{} is on stream {}, and another collective of its group on stream {}: ranks might not meet in one order",
           describe(p_, i), instruction.stream, known);
    if (is_message) return check_message(i);
    const std::int64_t parts = instruction.attributes.integer("parts");
    if (parts != p_.mesh.size_of(axis))
      fail("{} is for {} ranks along {}, the mesh '{}' has {}", describe(p_, i), parts, axis, p_.mesh.str(),
           p_.mesh.size_of(axis));
    check_types(i);
  }

  // What an instruction reads and writes is what its op takes and makes, so that no more bytes are touched than are
  // looked at here; and ranks exchange parts and wholes that belong together.
  void check_types(std::size_t i) const {
    const Instruction& instruction = p_.instructions[i];
    ir::Types inputs;
    for (const Operand& o : instruction.inputs) inputs.push_back(o.type);
    ir::Types made;
    try {
      made = instruction.op->infer(inputs, instruction.attributes);
    } catch (Error& e) {
      throw e.within(describe(p_, i));
    }
    if (made.size() != instruction.outputs.size())
      fail("{} has {} outputs, and its op makes {}", describe(p_, i), instruction.outputs.size(), made.size());
    for (std::size_t o = 0; o < made.size(); ++o)
      if (const TensorType& type = instruction.outputs[o].type;
          type.dtype != made[o].dtype || type.bytes() != made[o].bytes())
        fail("{} writes {}, and its op makes {}", describe(p_, i), type.str(), made[o].str());
  }

  // One stream issues all messages of a group, in one direction.
  void check_stage_message(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    const auto [known, fresh] = message_streams_.emplace(message_group(instruction), i);
    const Instruction& other = p_.instructions[known->second];
    if (other.stream != instruction.stream || other.kind != instruction.kind)
      fail("{} is on stream {}, and {} on stream {}: messages of one group have one stream", describe(p_, i),
           instruction.stream, describe(p_, known->second), other.stream);
    if (instruction.stream == 0) fail("{} is on stream 0, where other work would wait for its peer", describe(p_, i));
  }

  // Known when all instructions were seen: nothing else is on a stream of messages between stages. (Captured work is
  // not ordered with those streams: program/capture_regions.h.)
  void check_message_streams() const {
    std::map<std::int32_t, std::size_t> message_on;  // by stream: the first
    for (const auto& [group, i] : message_streams_) message_on.emplace(p_.instructions[i].stream, i);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      if (p_.instructions[i].between_stages()) continue;
      if (const auto message = message_on.find(p_.instructions[i].stream); message != message_on.end())
        fail("{} is on stream {}, where {} would wait for its peer", describe(p_, message->second), message->first,
             describe(p_, i));
    }
  }

  // Nor where there are none: what is captured is not ordered with these streams (program/capture_regions.h).
  void check_streams_of_messages() const {
    for (std::size_t i = 0; i < p_.instructions.size(); ++i)
      if (const std::int32_t stream = p_.instructions[i].stream;
          is_between_ranks(stream) && !is_comm_stream(stream) && !p_.instructions[i].between_stages())
        fail("{} is on stream {}, which is for messages between stages", describe(p_, i), stream);
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
      check_declared(i);
      check_tiers(i);
      check_overlaps(i);
    }
    check_message_streams();
    check_streams_of_messages();
  }

  void inside(std::size_t i, const Operand& o) const {
    if (o.buffer == kNone) return;
    if (static_cast<std::size_t>(o.buffer) >= p_.buffers.size())
      fail("{} names buffer {}, which does not exist", describe(p_, i), o.buffer);
    const Buffer& b = buffer(o);
    if (o.place.axis != kNone) check_place(i, o);
    const Instruction& instruction = p_.instructions[i];
    const bool moves = instruction.moves();
    std::size_t alignment = moves ? b.alignment : kAlignment;
    // Some rows of a tensor begin anywhere, and messages carry them from there.
    const bool message = instruction.communicates() && instruction.kind != Instruction::Kind::collective;
    if (o.place.axis != kNone || message) alignment = size_of(o.type.dtype);
    if (range(o).begin % alignment != 0)
      fail("{} uses buffer '{}' at offset {}, which is not aligned", describe(p_, i), b.name, range(o).begin);
    const std::size_t touched = o.offset + (moves ? b.moved(o.extent()) : o.extent());
    if (touched > b.bytes || b.offset + touched > p_.bytes_in(b.tier))
      fail("{} reaches beyond buffer '{}' ({} of {} bytes)", describe(p_, i), b.name, touched, b.bytes);
  }

  void check_place(std::size_t i, const Operand& o) const {
    const bool known = static_cast<std::size_t>(o.place.axis) < p_.mesh.axes.size();
    const int size = known ? p_.mesh.axes[static_cast<std::size_t>(o.place.axis)].size : 1;
    if (!known || o.place.count != size)
      fail("{} uses '{}' by its place among {} ranks along axis {}, the mesh '{}' has {}", describe(p_, i), name(o),
           o.place.count, o.place.axis, p_.mesh.str(), size);
  }

  // A state is written by an instruction that has it as an output; checkpoints are staged by none.
  void check_declared(std::size_t i) const {
    const Instruction& instruction = p_.instructions[i];
    if (const Operand& o = instruction.workspace; o.buffer != kNone && buffer(o).state != kNone)
      fail("{} has state '{}' as its workspace", describe(p_, i), name(o));
    for_each_operand(instruction, [&](const Operand& o, bool) {
      if (buffer(o).state == kStaging) fail("{} uses '{}', where checkpoints are staged", describe(p_, i), name(o));
    });
  }

  // Only stores and loads reach other tiers, each from one to the other, and launches on the host, which stay there.
  void check_tiers(std::size_t i) const {
    const Instruction& instruction = p_.instructions[i];
    if (instruction.moves() && (instruction.inputs.size() != 1 || instruction.outputs.size() != 1 ||
                                instruction.inputs[0].buffer == kNone || instruction.outputs[0].buffer == kNone))
      fail("{} does not copy one tensor", describe(p_, i));
    if (const bool copies = instruction.moves() || instruction.kind == Instruction::Kind::copy;
        copies && instruction.inputs[0].type.bytes() != instruction.outputs[0].type.bytes())
      fail("{} copies {} to {}, which is not as large", describe(p_, i), instruction.inputs[0].type.str(),
           instruction.outputs[0].type.str());
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
  void check_overlaps(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    touched_.clear();
    const auto touch = [&](const Operand& o, std::size_t which, bool writes) {
      if (o.buffer != kNone && o.extent() > 0) touched_.push_back({buffer(o).tier, range(o), &o, which, writes});
    };
    for (std::size_t o = 0; o < instruction.outputs.size(); ++o) touch(instruction.outputs[o], o, true);
    touch(instruction.workspace, instruction.outputs.size(), true);
    for (std::size_t o = 0; o < instruction.inputs.size(); ++o) touch(instruction.inputs[o], o, false);
    std::sort(touched_.begin(), touched_.end(), [](const Touched& a, const Touched& b) {
      return std::tie(a.tier, a.range.begin) < std::tie(b.tier, b.range.begin);
    });
    // Collectives have hundreds of operands. Of those that begin before this one, only those that reach it stay.
    std::vector<const Touched*> written;
    std::vector<const Touched*> read;
    for (const Touched& t : touched_) {
      const auto passed = [&](const Touched* other) {
        return other->tier != t.tier || other->range.end <= t.range.begin;
      };
      std::erase_if(written, passed);
      if (t.writes && !written.empty()) fail("{} writes the same bytes through two outputs", describe(p_, i));
      for (const Touched* other : written) check_in_place(i, *other, t);
      if (t.writes) {
        std::erase_if(read, passed);
        for (const Touched* other : read) check_in_place(i, t, *other);
      }
      (t.writes ? written : read).push_back(&t);
    }
  }

  struct Touched {
    int tier;
    Range range;
    const Operand* operand;
    std::size_t which;  // of the inputs, or of the outputs and the workspace
    bool writes;
  };

  void check_in_place(std::size_t i, const Touched& written, const Touched& read) const {
    if (!in_place(p_.instructions[i], written.which, read.which))
      fail("{} writes '{}' over its own input '{}'", describe(p_, i), name(*written.operand), name(*read.operand));
  }

  bool in_place(const Instruction& instruction, std::size_t output, std::size_t input) const {
    if (instruction.op == nullptr || output >= instruction.outputs.size()) return false;
    const Operand& to = instruction.outputs[output];
    const Operand& from = instruction.inputs[input];
    if (to.buffer != from.buffer || to.offset != from.offset) return false;
    if (output == input && instruction.op->name == ops::kAllGather) return is_own_part(instruction, from, to);
    if (output == input && instruction.op->name == ops::kReduceScatter) return is_own_part(instruction, to, from);
    return to.place == from.place &&
           instruction.op->traits.allows_in_place(static_cast<int>(output), static_cast<int>(input));
  }

  // Whether a rank's part of a whole lies where it belongs in it.
  bool is_own_part(const Instruction& collective, const Operand& part, const Operand& whole) const {
    const std::string& axis = collective.attributes.text("axis");
    const Place& place = part.place;
    return whole.place.axis == kNone && place.axis != kNone && place.stride == part.type.bytes() &&
           p_.mesh.axes[static_cast<std::size_t>(place.axis)].name == axis;
  }

  const std::string& name(const Operand& o) const { return p_.buffers[static_cast<std::size_t>(o.buffer)].name; }

  void walk() {
    const HappensBefore happens_before = order();
    Contents contents(p_, happens_before);
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      for (const Operand& o : instruction.inputs) contents.read(i, o);
      if (instruction.accumulate) {
        Operand before = instruction.outputs.front();
        before.value = instruction.sum;
        contents.read(i, before);
      }
      contents.write(i, instruction.workspace);
      for (const Operand& o : instruction.outputs) contents.write(i, o);
    }
    for (const NamedOutput& output : p_.outputs) {
      if (static_cast<std::size_t>(output.operand.buffer) >= p_.buffers.size())
        fail("output '{}' of micro-batch {} has no buffer", output.name, output.micro);
      contents.check_output(output);
    }
    contents.check_states();
    report_.conflicts_ordered = contents.conflicts_ordered();
  }

  const Program& p_;
  CheckReport report_;
  std::vector<Touched> touched_;                            // by one instruction
  std::array<std::vector<const Buffer*>, kTiers> states_;   // sorted by where they lie
  std::map<std::string, std::int32_t> collective_streams_;  // by axes of the group; "": what is pushed and pulled
  std::int32_t host_stream_ = kNone;
  std::int32_t pulled_ = kNone;                                                   // the last pull so far
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, std::size_t> messages_;  // pulled?, peer, key
  std::map<std::string, std::size_t> message_streams_;  // by group: the first of its messages between stages
};

}  // namespace

CheckReport check(const Program& program) { return Checker(program).run(); }

}  // namespace trireme::program
