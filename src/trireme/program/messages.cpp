#include "trireme/program/messages.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/program/graph_run.h"
#include "trireme/program/stream_order.h"

namespace trireme::program {
namespace {

constexpr std::int32_t kStreams[] = {kSendActivationStream, kReceiveActivationStream, kSendGradientStream,
                                     kReceiveGradientStream};

std::int32_t stream_of(const Instruction& i) {
  const bool sends = i.kind == Instruction::Kind::send;
  if (i.attributes.text("channel") == "activation") return sends ? kSendActivationStream : kReceiveActivationStream;
  return sends ? kSendGradientStream : kReceiveGradientStream;
}

class Releases {
 public:
  Releases(Program& program, const MessageOptions& options)
      : p_(program), options_(options), events_(program.events()) {}

  void run() {
    std::vector<std::vector<std::size_t>> gradients;          // sent with one action each
    std::vector<std::vector<std::size_t>> activations;        // likewise
    std::map<std::int32_t, std::vector<std::size_t>> open;    // by micro-batch: activations on their way
    std::pair<std::int32_t, std::int32_t> action{kNone, 0};   // the last backward: micro-batch and chunk
    std::pair<std::int32_t, std::int32_t> forward{kNone, 0};  // the last forward
    for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
      const Instruction& instruction = p_.instructions[i];
      const std::pair own{instruction.micro, instruction.chunk};
      if (instruction.stream == kSendActivationStream) {
        open[instruction.micro].push_back(i);
        if (activations.empty() || action_of(activations.back().front()) != own) activations.emplace_back();
        activations.back().push_back(i);
      }
      if (instruction.stream == 0 && instruction.kind == Instruction::Kind::launch &&
          instruction.phase == ir::Phase::forward && own != forward) {
        forward = own;
        leave_on_their_way(i, own, activations, options_.activations);
      }
      if (instruction.stream == kSendGradientStream && instruction.phase != ir::Phase::update) {
        if (gradients.empty() || action_of(gradients.back().front()) != own) gradients.emplace_back();
        gradients.back().push_back(i);
      }
      // A part of a micro-batch's backward that has its message: what is added up behind it may be of another.
      if (instruction.stream != 0 || instruction.kind != Instruction::Kind::launch || !is_gradient(instruction.phase))
        continue;
      if (const auto sent = open.find(instruction.micro); sent != open.end()) {
        for (const std::size_t from : sent->second) wait_for(i, from);
        open.erase(sent);
      }
      if (own == action || instruction.phase != ir::Phase::input_gradient) continue;
      action = own;
      leave_on_their_way(i, own, gradients, options_.gradients);
    }
  }

 private:
  // Of what earlier actions have sent all but the last one and `kept` before it has arrived when `i` starts, the first
  // launch of `own`. (What an action only passes on it has sent already.)
  void leave_on_their_way(std::size_t i, std::pair<std::int32_t, std::int32_t> own,
                          const std::vector<std::vector<std::size_t>>& sent, int kept) {
    const std::size_t earlier = sent.size() - (!sent.empty() && action_of(sent.back().front()) == own ? 1 : 0);
    if (kept == 0 || earlier <= static_cast<std::size_t>(kept)) return;
    for (const std::size_t from : sent[earlier - 1 - static_cast<std::size_t>(kept)]) wait_for(i, from);
  }

  std::pair<std::int32_t, std::int32_t> action_of(std::size_t i) const {
    return {p_.instructions[i].micro, p_.instructions[i].chunk};
  }

  void wait_for(std::size_t i, std::size_t from) {
    std::int32_t& event = p_.instructions[from].records;
    if (event == kNone) event = events_++;
    std::vector<std::int32_t>& waits = p_.instructions[i].waits;
    if (std::find(waits.begin(), waits.end(), event) == waits.end()) waits.push_back(event);
  }

  Program& p_;
  const MessageOptions& options_;
  std::int32_t events_;
};

// The first sum over replicas that follows the last message waits for it, and so do those behind it on its stream.
void let_messages_go_first(Program& p) {
  std::size_t last = p.instructions.size();
  for (std::size_t i = 0; i < p.instructions.size(); ++i)
    if (p.instructions[i].stream == kSendGradientStream && p.instructions[i].phase != ir::Phase::update) last = i;
  for (std::size_t i = last; i < p.instructions.size(); ++i) {
    Instruction& sum = p.instructions[i];
    if (sum.kind != Instruction::Kind::collective || sum.phase != ir::Phase::update || sum.stream == 0) continue;
    std::int32_t& event = p.instructions[last].records;
    if (event == kNone) event = p.events();
    if (std::find(sum.waits.begin(), sum.waits.end(), event) == sum.waits.end()) sum.waits.push_back(event);
    return;
  }
}

// The compute stream no longer waits for what its messages wait for: what needs it too waits for itself.
void keep_waits(Program& p) {
  std::map<std::int32_t, std::size_t> recorded;  // by event
  for (std::size_t i = 0; i < p.instructions.size(); ++i)
    if (p.instructions[i].records != kNone) recorded[p.instructions[i].records] = i;
  const auto touches = [](const std::vector<Operand>& operands, const std::set<BufferId>& buffers) {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return buffers.contains(o.buffer); });
  };
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    if (!p.instructions[i].between_stages() || p.instructions[i].stream != 0) continue;
    for (const std::int32_t event : p.instructions[i].waits) {
      const std::size_t from = recorded.at(event);
      std::set<BufferId> read;
      std::set<BufferId> written;
      for (std::size_t k = 0; k <= from; ++k) {
        if (p.instructions[k].stream != p.instructions[from].stream) continue;
        for_each_operand(p.instructions[k],
                         [&](const Operand& o, bool writes) { (writes ? written : read).insert(o.buffer); });
      }
      for (std::size_t k = i + 1; k < p.instructions.size(); ++k) {
        Instruction& later = p.instructions[k];
        if (later.stream != 0 || later.between_stages()) continue;
        if (!touches(later.inputs, written) && !touches(later.outputs, written) && !touches(later.outputs, read))
          continue;
        if (std::find(later.waits.begin(), later.waits.end(), event) == later.waits.end()) later.waits.push_back(event);
        break;
      }
    }
  }
}

}  // namespace

void schedule_messages(Program& program, const MessageOptions& options) {
  keep_waits(program);
  bool any = false;
  for (Instruction& i : program.instructions)
    if (i.between_stages()) {
      i.stream = stream_of(i);
      any = true;
    }
  if (!any) return;
  Releases(program, options).run();
  let_messages_go_first(program);
  for (const std::int32_t stream : kStreams) order_stream(program, stream);
}

std::string message_group(const std::string& channel, int from, int to) {
  return fmt::format("{} {}-{}", channel, from, to);
}

std::string message_group(const Instruction& message) {
  return message_group(message.attributes.text("channel"), static_cast<int>(message.attributes.integer("from")),
                       static_cast<int>(message.attributes.integer("to")));
}

}  // namespace trireme::program
