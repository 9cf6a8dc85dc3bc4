#include "trireme/program/stream_order.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "trireme/program/happens_before.h"

namespace trireme::program {
namespace {

bool share_bytes(const Operand& a, const Operand& b) {
  return a.offset < b.offset + b.extent() && b.offset < a.offset + a.extent();
}

class Orderer {
 public:
  Orderer(Program& program, std::int32_t stream)
      : p_(program), stream_(stream), events_(program.events()), order_(program) {}

  void run() {
    for (const Instruction& i : p_.instructions)
      if (i.stream == stream_) for_each_operand(i, [&](const Operand& o, bool) { touched_[o.buffer]; });
    std::size_t computed = kNothing;
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      for (const std::int32_t event : instruction.waits) order_.wait(i, recorder_.at(event));
      if (instruction.stream == stream_ && computed != kNothing) wait_for(i, computed);
      for_each_operand(instruction, [&](const Operand& o, bool writes) { touch(i, o, writes); });
      order_.start(i);
      if (instruction.records != kNone) recorder_[instruction.records] = i;
      if (instruction.stream == 0) computed = i;
    }
  }

 private:
  struct Access {
    std::size_t instruction;
    Operand operand;
    bool writes;
  };

  void touch(std::size_t i, const Operand& o, bool writes) {
    const auto shared = touched_.find(o.buffer);
    if (shared == touched_.end()) return;
    std::vector<Access>& before = shared->second;
    for (const Access& a : before)
      if ((a.writes || writes) && on_stream(a.instruction) != on_stream(i) && share_bytes(a.operand, o))
        wait_for(i, a.instruction);
    before.push_back({i, o, writes});
  }

  void wait_for(std::size_t i, std::size_t from) {
    if (order_.before(from, i)) return;
    std::int32_t& event = p_.instructions[from].records;
    if (event == kNone) event = events_++;
    p_.instructions[i].waits.push_back(event);
    recorder_[event] = from;
    order_.wait(i, from);
  }

  bool on_stream(std::size_t i) const { return p_.instructions[i].stream == stream_; }

  static constexpr std::size_t kNothing = static_cast<std::size_t>(-1);
  Program& p_;
  std::int32_t stream_;
  std::int32_t events_;
  HappensBefore order_;
  std::unordered_map<std::int32_t, std::size_t> recorder_;
  std::unordered_map<BufferId, std::vector<Access>> touched_;  // of what the stream touches
};

}  // namespace

std::vector<std::size_t> moved_order(const std::vector<std::size_t>& at, const std::vector<bool>& moves) {
  std::vector<std::size_t> order(at.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return at[a] != at[b] ? at[a] < at[b] : moves[a] && !moves[b];
  });
  return order;
}

void order_stream(Program& program, std::int32_t stream) { Orderer(program, stream).run(); }

}  // namespace trireme::program
