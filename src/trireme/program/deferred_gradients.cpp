#include "trireme/program/deferred_gradients.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trireme/program/graph_run.h"
#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

class Deferrer {
 public:
  explicit Deferrer(Program& program) : p_(program) {}

  void run() {
    for (std::size_t i = 0; i < p_.instructions.size(); ++i)
      if (is_waited(p_.instructions[i])) last_waited_[action_of(p_.instructions[i])] = i;
    if (last_waited_.empty()) return;
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) place(i);
    launch(deferred_.size());
    std::vector<Instruction> fresh;
    fresh.reserve(order_.size());
    for (const std::size_t i : order_) fresh.push_back(std::move(p_.instructions[i]));
    p_.instructions = std::move(fresh);
  }

 private:
  // Whether it is a collective for whose result the backward pass waits. What a few sums of channels take (of a batch
  // norm) is mostly latency: the gradients are worth more to the next one.
  static bool is_waited(const Instruction& i) {
    return i.kind == Instruction::Kind::collective && i.phase == ir::Phase::input_gradient &&
           std::any_of(i.outputs.begin(), i.outputs.end(), [](const Operand& o) { return o.type.shape.rank() > 1; });
  }

  // Gathers of what was saved in slices go with the products that read them.
  static bool may_wait(const Instruction& i) {
    const bool computes = i.kind == Instruction::Kind::launch && i.stream == 0;
    return (computes || i.kind == Instruction::Kind::collective) && i.phase == ir::Phase::weight_gradient;
  }

  void place(std::size_t i) {
    const Instruction& instruction = p_.instructions[i];
    if (!deferred_.empty() && !is_of_their_action(instruction)) launch(deferred_.size());
    const auto last = last_waited_.find(action_of(instruction));
    const bool more = last != last_waited_.end() && i < last->second;  // to wait for
    if (may_wait(instruction) && more) {
      deferred_.push_back(i);
      if (sums() > kDeferred) launch_first_sum();
    } else {
      if (may_wait(instruction)) launch(deferred_.size());  // they stay in their order
      follow_deferred(instruction);
      if (instruction.stream == 0 && !instruction.communicates()) fill(instruction);
      order_.push_back(i);
    }
    note(instruction);
  }

  using Key = std::pair<std::int32_t, std::int32_t>;
  static Key action_of(const Instruction& i) { return {i.micro, i.chunk}; }
  bool is_of_their_action(const Instruction& i) const {
    return is_gradient(i.phase) && action_of(i) == action_of(p_.instructions[deferred_.front()]);
  }

  // Those before it that write what it touches, or read what it writes, and all that came before them.
  void follow_deferred(const Instruction& instruction) {
    std::size_t count = 0;
    for_each_operand(instruction, [&](const Operand& o, bool writes) {
      for (std::size_t d = deferred_.size(); d-- > count;)
        for_each_operand(p_.instructions[deferred_[d]], [&](const Operand& other, bool written) {
          if (other.buffer == o.buffer && (writes || written)) count = std::max(count, d + 1);
        });
    });
    launch(count);
  }

  // In front of what waits for a collective.
  void fill(const Instruction& instruction) {
    std::size_t waited = 0;  // of those under way: streams are in order
    for_each_operand(instruction, [&](const Operand& o, bool) {
      for (std::size_t c = waited; c < under_way_.size(); ++c)
        if (under_way_[c] == o.buffer) waited = c + 1;
    });
    if (waited == 0) return;
    under_way_.erase(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(waited));
    launch(deferred_.size());
  }

  // A collective of what was there before the backward pass, such as a gather of weights, starts ahead of its use.
  void note(const Instruction& instruction) {
    if (!is_gradient(instruction.phase)) return;
    const bool waited =
        is_waited(instruction) && std::any_of(instruction.inputs.begin(), instruction.inputs.end(),
                                              [&](const Operand& o) { return made_.contains(o.buffer); });
    for (const Operand& o : instruction.outputs) {
      made_.insert(o.buffer);
      if (waited) under_way_.push_back(o.buffer);
    }
  }

  // Of what is deferred, that which adds to a gradient: what else there is may differ by a rank's place.
  bool is_sum(std::size_t i) const {
    const std::vector<Operand>& outputs = p_.instructions[i].outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const Operand& o) { return static_cast<std::size_t>(o.buffer) < p_.states; });
  }
  std::size_t sums() const {
    return static_cast<std::size_t>(
        std::count_if(deferred_.begin(), deferred_.end(), [&](std::size_t i) { return is_sum(i); }));
  }
  void launch_first_sum() {
    const auto first = std::find_if(deferred_.begin(), deferred_.end(), [&](std::size_t i) { return is_sum(i); });
    launch(static_cast<std::size_t>(first - deferred_.begin()) + 1);
  }

  // The first `count` of those deferred.
  void launch(std::size_t count) {
    const auto last = deferred_.begin() + static_cast<std::ptrdiff_t>(count);
    order_.insert(order_.end(), deferred_.begin(), last);
    deferred_.erase(deferred_.begin(), last);
  }

  Program& p_;
  std::map<Key, std::size_t> last_waited_;  // collective of an action
  std::vector<std::size_t> order_;
  std::deque<std::size_t> deferred_;
  std::vector<BufferId> under_way_;    // what collectives make, in their order
  std::unordered_set<BufferId> made_;  // by the backward pass
};

}  // namespace

void defer_weight_gradients(Program& program) { Deferrer(program).run(); }

}  // namespace trireme::program
