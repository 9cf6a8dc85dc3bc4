#include "trireme/program/collectives.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/axes.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/program/graph_run.h"
#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

bool collective(const Instruction& i) { return i.communicates() && !i.between_stages(); }

class Scheduler {
 public:
  Scheduler(Program& program, const CollectiveOptions& options) : p_(program), options_(options) {}

  void run() {
    if (std::none_of(p_.instructions.begin(), p_.instructions.end(), collective)) return;
    if (!options_.overlap) return;
    find_streams();
    find_sends();
    move();
    order_stream(p_, kCommStream);
    if (own_reductions_) order_stream(p_, kReduceStream);
  }

 private:
  static bool over_replicas(const Instruction& i) {
    if (i.kind != Instruction::Kind::collective) return false;
    const std::vector<std::string> axes = split(i.attributes.text("axis"), '+');
    return std::find(axes.begin(), axes.end(), ir::kDataAxis) != axes.end();
  }

  // A communicator is used from one stream: which one follows from the axes.
  void find_streams() {
    bool over = false;
    bool others = false;
    for (const Instruction& i : p_.instructions)
      if (collective(i)) (over_replicas(i) ? over : others) = true;
    own_reductions_ = options_.own_reductions && over && others;
  }
  std::int32_t stream_of(const Instruction& i) const {
    return own_reductions_ && over_replicas(i) ? kReduceStream : kCommStream;
  }

  // By place: behind the last message that the backward action there still sends; without one, the place itself.
  void find_sends() {
    behind_send_.resize(p_.instructions.size() + 1);
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> sent;
    for (std::size_t i = p_.instructions.size() + 1; i-- > 0;) {
      behind_send_[i] = i;
      if (i == p_.instructions.size()) continue;
      const Instruction& instruction = p_.instructions[i];
      if (instruction.phase != ir::Phase::input_gradient && instruction.phase != ir::Phase::weight_gradient) continue;
      const std::pair action{instruction.micro, instruction.chunk};
      if (instruction.kind == Instruction::Kind::send) sent.try_emplace(action, i + 1);
      if (const auto send = sent.find(action); send != sent.end()) behind_send_[i] = std::max(i, send->second);
    }
  }

  // Of gradients, over replicas.
  bool sums_gradients(const Instruction& i) const {
    return over_replicas(i) && i.op->name != ops::kAllGather && i.phase != ir::Phase::forward && combines(i);
  }

  bool gathers_for_use(const Instruction& i) const {
    return i.op->name == ops::kAllGather && std::all_of(i.outputs.begin(), i.outputs.end(), [&](const Operand& o) {
             const Buffer& buffer = p_.buffers[static_cast<std::size_t>(o.buffer)];
             return buffer.state == kNone && buffer.category != Category::staging;
           });
  }

  // Of what ranks keep a share each, not of state: it was whole before, and is to be so for one use.
  bool gathers_values(const Instruction& i) const {
    return std::all_of(i.inputs.begin(), i.inputs.end(), [&](const Operand& o) {
      return static_cast<std::size_t>(o.buffer) >= p_.states &&
             p_.buffers[static_cast<std::size_t>(o.buffer)].state == kNone;
    });
  }

  // What ranks combine beyond a scalar, such as gradients: worth starting early.
  bool combines(const Instruction& i) const {
    std::size_t bytes = 0;
    for (const Operand& o : i.outputs) {
      const Buffer& buffer = p_.buffers[static_cast<std::size_t>(o.buffer)];
      if (i.op->name == ops::kAllGather && buffer.category != Category::staging) return false;
      bytes += o.type.bytes();
    }
    return bytes > kAlignment;
  }

  // What may stand earlier than it came: collectives, and what the update launches to make their operands.
  std::vector<bool> movable() const {
    std::vector<bool> moves(p_.instructions.size(), false);
    std::unordered_set<BufferId> wanted;
    for (std::size_t i = moves.size(); i-- > 0;) {
      const Instruction& instruction = p_.instructions[i];
      const bool launch = instruction.kind == Instruction::Kind::launch && !instruction.on_host &&
                          instruction.phase == ir::Phase::update;
      // An answer comes when all was sent that it needs, to whomever: it stays where it stands.
      moves[i] = (collective(instruction) && instruction.kind != Instruction::Kind::pull) ||
                 (launch && std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                                        [&](const Operand& o) { return wanted.contains(o.buffer); }));
      if (moves[i] && (launch || (instruction.phase == ir::Phase::update && combines(instruction))))
        for (const Operand& o : instruction.inputs) wanted.insert(o.buffer);
    }
    return moves;
  }

  // Instructions that others must follow: the position to come before, or, of what is moved there, the same one.
  struct Touched {
    std::size_t read = 0;
    std::size_t written = 0;
  };

  // Positions are those of the instructions as they came; what moves goes right before the one whose position it is
  // given, in the order in which it came.
  void move() {
    const std::vector<bool> moves = movable();
    std::vector<std::size_t> at(p_.instructions.size());
    std::vector<std::size_t> gathers;  // of state
    std::vector<std::size_t> value_gathers;
    std::unordered_map<BufferId, Touched> touched;
    std::unordered_map<std::int32_t, std::size_t> recorded;
    std::unordered_set<BufferId> loaded;
    std::size_t last_halo = 0;
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      at[i] = i;
      if (instruction.kind == Instruction::Kind::load) loaded.insert(instruction.outputs.front().buffer);
      if (moves[i]) {
        std::size_t earliest = 0;
        for_each_operand(instruction, [&](const Operand& o, bool writes) {
          const Touched& before = touched[o.buffer];
          earliest = std::max({earliest, before.written, writes ? before.read : 0});
        });
        for (const std::int32_t event : instruction.waits) earliest = std::max(earliest, recorded.at(event));
        // A halo of what the forward phase made would only be held while others are exchanged.
        if (ops::is_halo(*instruction.op)) {
          if (is_gradient(instruction.phase)) earliest = std::max(earliest, last_halo);
          last_halo = earliest;
        }
        if (sums_gradients(instruction)) earliest = std::min(i, behind_send_[earliest]);
        // What was loaded is there when each role's own costs say, and no sooner than it is read: the order of
        // collectives must not follow from that.
        if (std::any_of(instruction.inputs.begin(), instruction.inputs.end(),
                        [&](const Operand& o) { return loaded.contains(o.buffer); }))
          earliest = i;
        at[i] = earliest;
        if (collective(instruction) && gathers_for_use(instruction))
          (gathers_values(instruction) ? value_gathers : gathers).push_back(i);
      }
      const std::size_t done = moves[i] ? at[i] : i + 1;
      for_each_operand(instruction, [&](const Operand& o, bool writes) {
        std::size_t& last = writes ? touched[o.buffer].written : touched[o.buffer].read;
        last = std::max(last, done);
      });
      if (instruction.records != kNone) recorded[instruction.records] = done;
    }
    keep_to_window(gathers, at, options_.ahead);
    // Gathered far ahead, they would take back what keeping shares of them has saved: the next one is enough.
    keep_to_window(value_gathers, at, std::min(options_.ahead, largest(value_gathers)));
    stay_behind(moves, at);
    std::vector<Instruction> fresh;
    fresh.reserve(at.size());
    for (const std::size_t i : moved_order(at, moves)) {
      if (collective(p_.instructions[i]))
        send_along(p_.instructions[i], stream_of(p_.instructions[i]));
      else if (const std::int32_t stream = moves[i] ? stream_before(p_.instructions[i]) : kNone; stream != kNone)
        send_along(p_.instructions[i], stream);
      fresh.push_back(std::move(p_.instructions[i]));
    }
    p_.instructions = std::move(fresh);
    hold_up_copies();
  }

  // A gather may have had to wait for the window: what moves and reads it stays behind it.
  void stay_behind(const std::vector<bool>& moves, std::vector<std::size_t>& at) const {
    std::unordered_map<BufferId, std::size_t> made;  // by what moves: where
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (!moves[i]) continue;
      for (const Operand& o : p_.instructions[i].inputs)
        if (const auto found = made.find(o.buffer); found != made.end()) at[i] = std::max(at[i], found->second);
      for (const Operand& o : p_.instructions[i].outputs) made[o.buffer] = at[i];
    }
  }

  // A copy starts after the compute instruction before it, which may be another one now: memory that is free there is
  // free for the copy too.
  void hold_up_copies() {
    std::int32_t events = p_.events();
    std::size_t computed = p_.instructions.size();
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      Instruction& instruction = p_.instructions[i];
      if (!instruction.moves()) {
        if (instruction.stream == 0 && !instruction.on_host) computed = i;
        continue;
      }
      if (computed >= i) continue;
      Instruction& before = p_.instructions[computed];
      if (before.records == kNone) before.records = events++;
      if (std::find(instruction.waits.begin(), instruction.waits.end(), before.records) == instruction.waits.end())
        instruction.waits.push_back(before.records);
    }
  }

  // What lies between two collectives goes on their stream, so that the computation does not wait for the first.
  void send_along(Instruction& instruction, std::int32_t stream) {
    instruction.stream = stream;
    for (const Operand& o : instruction.outputs) sent_[o.buffer] = stream;
  }
  // Of the collective that it follows.
  std::int32_t stream_before(const Instruction& instruction) const {
    for (const Operand& o : instruction.inputs)
      if (const auto sent = sent_.find(o.buffer); sent != sent_.end()) return sent->second;
    return kNone;
  }

  std::size_t bytes(std::size_t i) const {
    std::size_t sum = 0;
    for (const Operand& o : p_.instructions[i].outputs) sum += o.type.bytes();
    return sum;
  }
  std::size_t largest(const std::vector<std::size_t>& gathers) const {
    std::size_t most = 0;
    for (const std::size_t i : gathers) most = std::max(most, bytes(i));
    return most;
  }

  // A gather comes right before its first reader: `oldest` is the first one that fits in the window with this one.
  void keep_to_window(const std::vector<std::size_t>& gathers, std::vector<std::size_t>& at, std::size_t ahead) const {
    const std::size_t window = ahead + largest(gathers);
    std::size_t oldest = 0;
    std::size_t held = 0;
    std::size_t earliest = 0;
    for (std::size_t k = 0; k < gathers.size(); ++k) {
      const std::size_t i = gathers[k];
      held += bytes(i);
      while (held > window && oldest < k) held -= bytes(gathers[oldest++]);
      const std::size_t passed = oldest == 0 ? 0 : gathers[oldest - 1] + 2;  // behind that one's first reader
      earliest = std::max({earliest, at[i], passed});
      at[i] = earliest = std::min(earliest, i);
    }
  }

  Program& p_;
  const CollectiveOptions& options_;
  bool own_reductions_ = false;
  std::vector<std::size_t> behind_send_;
  std::unordered_map<BufferId, std::int32_t> sent_;  // made on a stream of collectives
};

}  // namespace

void schedule_collectives(Program& program, const CollectiveOptions& options) { Scheduler(program, options).run(); }

}  // namespace trireme::program
