#include "trireme/program/check_together.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/program/messages.h"
#include "trireme/program/print.h"

namespace trireme::program {
namespace {

std::string types_text(const std::vector<Operand>& operands) {
  std::vector<std::string> types;
  types.reserve(operands.size());
  for (const Operand& o : operands) types.push_back(o.type.str());
  return fmt::format("{}", fmt::join(types, ", "));
}

// What ranks must have in common about a collective.
std::string collective_text(const Instruction& i) {
  std::string text = i.op->name;
  // Of a halo exchange ranks have unequal slices, of which all know all: they differ in their place alone, which no
  // other collective has.
  const bool halo = ops::is_halo(*i.op);
  for (const auto& [name, value] : i.attributes)
    if (name != "place") text += fmt::format(" {}={}", name, ir::to_text(value));
  if (halo) {
    TensorType rest = i.inputs.front().type;
    rest.shape[static_cast<int>(i.attributes.integer("dim"))] = 0;
    return text + " of slices of " + rest.str();
  }
  return text + " of " + types_text(i.inputs.empty() ? i.outputs : i.inputs);
}

// And about each value that it makes. Values of one graph have different names; those of a step's graphs differ in
// phase.
std::string value_text(const Instruction& i, std::size_t output) {
  return fmt::format("'{}' of micro-batch {}, {}", i.of[output], i.micro, ir::name_of(i.phase));
}

class TogetherChecker {
 public:
  // How a rank's instructions follow each other: each stream by itself, or all in the order of the program, as the one
  // thread comes to them that gives a device's streams their work.
  enum class Order : std::uint8_t { streams, one_thread };

  TogetherChecker(std::span<const RoleProgram> roles, std::span<const Group> groups, Order order)
      : roles_(roles), groups_(groups), order_(order) {
    for (const RoleProgram& role : roles) {
      first_.push_back(nodes_);
      // Two more nodes: taking all pushes, and answering all pulls.
      nodes_ += role.program->instructions.size() + 2;
    }
    same_.resize(nodes_);
    std::iota(same_.begin(), same_.end(), std::size_t{0});
    after_.resize(nodes_);
  }

  TogetherReport run() {
    expect_groups();
    for (const Group& group : groups_)
      if (group.messages.empty()) pair_collectives(group);
    pair_stage_messages();
    for (std::size_t r = 0; r < roles_.size(); ++r) {
      order_inside(r);
      pair_messages(r);
    }
    expect_all_keys();
    find_cycle();
    return report_;
  }

 private:
  const Instruction& instruction(std::size_t role, std::size_t i) const {
    return roles_[role].program->instructions[i];
  }
  std::size_t node(std::size_t role, std::size_t i) const { return first_[role] + i; }
  std::size_t takes(std::size_t role) const { return first_[role] + roles_[role].program->instructions.size(); }
  std::size_t answers(std::size_t role) const { return takes(role) + 1; }

  std::string describe(std::size_t role, std::size_t i) const {
    return fmt::format("{} of {}", program::describe(*roles_[role].program, i), roles_[role].role);
  }
  std::string describe_node(std::size_t n) const {
    std::size_t role = roles_.size() - 1;
    while (first_[role] > n) --role;
    if (n == takes(role)) return fmt::format("{} taking all pushes", roles_[role].role);
    if (n == answers(role)) return fmt::format("{} answering pulls", roles_[role].role);
    const auto received = received_.find(n);
    return describe(role, n - first_[role]) +
           (received == received_.end() ? "" : fmt::format(" (for {})", describe_node(received->second)));
  }

  static std::string axes_of(const Group& group) { return fmt::format("{}", fmt::join(group.axes, "+")); }

  // Collectives are compared group by group: each is of one.
  void expect_groups() const {
    std::set<std::pair<std::size_t, std::string>> known;  // by role
    for (const Group& group : groups_)
      if (group.messages.empty())
        for (const std::size_t role : group.roles) known.emplace(role, axes_of(group));
    for (std::size_t r = 0; r < roles_.size(); ++r)
      for (std::size_t i = 0; i < roles_[r].program->instructions.size(); ++i)
        if (const Instruction& collective = instruction(r, i); collective.kind == Instruction::Kind::collective)
          if (const std::string& axis = collective.attributes.text("axis"); !known.contains({r, axis}))
            fail("{} is along '{}', and there is no such group", describe(r, i), axis);
  }

  std::vector<std::size_t> collectives_of(std::size_t role, const Group& group) const {
    std::vector<std::size_t> found;
    const std::string axes = axes_of(group);
    const std::vector<Instruction>& all = roles_[role].program->instructions;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].kind == Instruction::Kind::collective && all[i].attributes.text("axis") == axes) found.push_back(i);
    return found;
  }

  void pair_collectives(const Group& group) {
    const std::size_t one = group.roles.front();
    const std::vector<std::size_t> ours = collectives_of(one, group);
    report_.collectives += ours.size();
    for (const std::size_t other : std::span(group.roles).subspan(1)) {
      const std::vector<std::size_t> theirs = collectives_of(other, group);
      for (std::size_t k = 0; k < std::min(ours.size(), theirs.size()); ++k) {
        const std::string a = collective_text(instruction(one, ours[k]));
        const std::string b = collective_text(instruction(other, theirs[k]));
        if (a != b)
          fail("collective {} along '{}' is {} ({}) in one role and {} ({}) in another", k, fmt::join(group.axes, "+"),
               describe(one, ours[k]), a, describe(other, theirs[k]), b);
        expect_same_values(group, k, {one, ours[k]}, {other, theirs[k]});
        same_[node(other, theirs[k])] = node(one, ours[k]);
      }
      if (ours.size() != theirs.size()) {
        const bool more = ours.size() > theirs.size();
        fail("{} waits along '{}' for {}, which has no such collective",
             more ? describe(one, ours[theirs.size()]) : describe(other, theirs[ours.size()]),
             fmt::join(group.axes, "+"), roles_[more ? other : one].role);
      }
    }
  }

  // Two collectives of the same types may be of different values: the ranks would add up, say, what does not belong
  // together.
  void expect_same_values(const Group& group, std::size_t k, std::pair<std::size_t, std::size_t> one,
                          std::pair<std::size_t, std::size_t> other) const {
    const Instruction& a = instruction(one.first, one.second);
    const Instruction& b = instruction(other.first, other.second);
    if (a.of.size() != b.of.size())
      fail("collective {} along '{}' makes {} values in {} and {} in {}", k, fmt::join(group.axes, "+"), a.of.size(),
           describe(one.first, one.second), b.of.size(), describe(other.first, other.second));
    for (std::size_t v = 0; v < a.of.size(); ++v)
      if (value_text(a, v) != value_text(b, v))
        fail("collective {} along '{}' makes {} in {} and {} in {}", k, fmt::join(group.axes, "+"), value_text(a, v),
             describe(one.first, one.second), value_text(b, v), describe(other.first, other.second));
  }

  // A message is done on both sides at once, when both have come to it: the k-th that one stage sends to another is the
  // k-th that the other receives from it.
  void pair_stage_messages() {
    struct Ends {
      std::vector<std::pair<std::size_t, std::size_t>> sent, received;  // role and instruction
    };
    std::map<std::string, Ends> groups;
    for (std::size_t r = 0; r < roles_.size(); ++r)
      for (std::size_t i = 0; i < roles_[r].program->instructions.size(); ++i)
        if (const Instruction& message = instruction(r, i); message.between_stages()) {
          Ends& ends = groups[message_group(message) + roles_[r].at];
          (message.kind == Instruction::Kind::send ? ends.sent : ends.received).emplace_back(r, i);
        }
    for (const auto& [group, ends] : groups) {
      for (std::size_t k = 0; k < std::max(ends.sent.size(), ends.received.size()); ++k) {
        if (k >= ends.sent.size())
          fail("{} waits for a message of '{}' that nobody sends",
               describe(ends.received[k].first, ends.received[k].second), group);
        if (k >= ends.received.size())
          fail("{} sends a message of '{}' that nobody receives", describe(ends.sent[k].first, ends.sent[k].second),
               group);
        pair(group, k, ends.sent[k], ends.received[k]);
      }
    }
  }

  void pair(const std::string& group, std::size_t k, std::pair<std::size_t, std::size_t> sent,
            std::pair<std::size_t, std::size_t> received) {
    const Instruction& from = instruction(sent.first, sent.second);
    const Instruction& to = instruction(received.first, received.second);
    const auto text = [](const Instruction& i, const Operand& o) {
      return fmt::format("'{}' under key {} of micro-batch {}, {}", i.attributes.text("of"),
                         i.attributes.integer("key"), i.micro, o.type.str());
    };
    const std::string a = text(from, from.inputs.front());
    const std::string b = text(to, to.outputs.front());
    if (a != b || sent.first == received.first)
      fail("message {} of '{}' is {} ({}) on one side and {} ({}) on the other", k, group,
           describe(sent.first, sent.second), a, describe(received.first, received.second), b);
    ++report_.messages;
    const std::size_t out = node(sent.first, sent.second);
    const std::size_t in = node(received.first, received.second);
    if (order_ == Order::streams) {
      same_[in] = out;
      received_[out] = in;
      return;
    }
    // A thread that sends goes on; it waits for the other's where a stream is to wait for the send's event.
    follow(in, out);
    taken_[out] = in;
  }

  void follow(std::size_t later, std::size_t earlier) { after_[same_[earlier]].push_back(same_[later]); }

  void order_inside(std::size_t role) {
    const std::vector<Instruction>& all = roles_[role].program->instructions;
    std::map<std::int32_t, std::size_t> last_on;   // stream → instruction
    std::map<std::int32_t, std::size_t> recorder;  // event → instruction
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].records != kNone) recorder[all[i].records] = i;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int32_t stream = order_ == Order::streams ? all[i].stream : 0;
      if (const auto before = last_on.find(stream); before != last_on.end())
        follow(node(role, i), node(role, before->second));
      last_on[stream] = i;
      for (const std::int32_t event : all[i].waits) {
        const auto from = recorder.find(event);
        if (from == recorder.end()) fail("{} waits for event {}, which nothing records", describe(role, i), event);
        const auto taken = taken_.find(node(role, from->second));
        follow(node(role, i), taken == taken_.end() ? node(role, from->second) : taken->second);
      }
      if (roles_[role].exchange == nullptr) continue;
      follow(node(role, i), takes(role));
      follow(answers(role), node(role, i));
    }
    if (roles_[role].exchange != nullptr) follow(answers(role), takes(role));
  }

  std::size_t role_of_rank(int rank) const {
    for (std::size_t r = 0; r < roles_.size(); ++r)
      if (std::find(roles_[r].ranks.begin(), roles_[r].ranks.end(), rank) != roles_[r].ranks.end()) return r;
    return roles_.size();
  }

  void pair_messages(std::size_t role) {
    const std::vector<Instruction>& all = roles_[role].program->instructions;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool push = all[i].kind == Instruction::Kind::push;
      if (!push && all[i].kind != Instruction::Kind::pull) continue;
      const auto peer = static_cast<int>(all[i].attributes.integer("peer"));
      const auto key = static_cast<int>(all[i].attributes.integer("key"));
      const std::vector<int>& peers = roles_[role].peers;
      const bool known = peers.empty() || (peer >= 0 && peer < static_cast<int>(peers.size()));
      const std::size_t other =
          !known ? roles_.size() : role_of_rank(peers.empty() ? peer : peers[static_cast<std::size_t>(peer)]);
      if (other == roles_.size() || roles_[other].exchange == nullptr)
        fail("{} is for rank {}, which takes no messages", describe(role, i), peer);
      const Exchange& table = *roles_[other].exchange;
      const Exchange::Message* message = nullptr;
      for (const auto* list : {&table.pushes, &table.states, &table.results})
        if (push == (list == &table.pushes))
          for (const Exchange::Message& m : *list)
            if (m.key == key) message = &m;
      if (message == nullptr)
        fail("{}: {} has nothing under key {} to {}", describe(role, i), roles_[other].role, key,
             push ? "take" : "answer with");
      if (const std::string& of = all[i].attributes.text("of"); of != message->of)
        fail("{} is of '{}', and {} has '{}' under key {}", describe(role, i), of, roles_[other].role, message->of,
             key);
      const TensorType& type = (push ? all[i].inputs : all[i].outputs).front().type;
      if (type != message->type)
        fail("{} is {}, and {} has {} under key {}", describe(role, i), type.str(), roles_[other].role,
             message->type.str(), key);
      used_[{other, push, key}] = true;
      ++report_.messages;
      if (push)
        follow(takes(other), node(role, i));
      else
        follow(node(role, i), answers(other));
    }
  }

  // Nothing is waited for that nobody sends.
  void expect_all_keys() {
    for (std::size_t r = 0; r < roles_.size(); ++r) {
      if (roles_[r].exchange == nullptr) continue;
      for (const Exchange::Message& m : roles_[r].exchange->pushes)
        if (!used_.contains({r, true, m.key}))
          fail("{} waits for '{}' under key {}, which nobody pushes", roles_[r].role, m.of, m.key);
      for (const auto* list : {&roles_[r].exchange->states, &roles_[r].exchange->results})
        for (const Exchange::Message& m : *list)
          if (!used_.contains({r, false, m.key}))
            fail("{} sends '{}' under key {}, which nobody pulls", roles_[r].role, m.of, m.key);
    }
  }

  // Takes away what nothing holds up; what is left lies on or behind a cycle.
  void find_cycle() {
    std::vector<std::size_t> waits_for(nodes_, 0);
    for (const auto& later : after_)
      for (const std::size_t n : later) ++waits_for[n];
    std::vector<std::size_t> ready;
    std::size_t left = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
      if (same_[n] != n) continue;
      ++left;
      if (waits_for[n] == 0) ready.push_back(n);
    }
    while (!ready.empty()) {
      const std::size_t n = ready.back();
      ready.pop_back();
      --left;
      for (const std::size_t later : after_[n])
        if (--waits_for[later] == 0) ready.push_back(later);
    }
    if (left == 0) return;
    // Backwards from any that is held up: each is held up by another, until one comes twice.
    std::vector<std::size_t> held_by(nodes_, nodes_);
    for (std::size_t n = 0; n < nodes_; ++n)
      if (same_[n] == n && waits_for[n] > 0)
        for (const std::size_t later : after_[n])
          if (waits_for[later] > 0) held_by[later] = n;
    std::size_t at = 0;
    while (held_by[at] == nodes_ || waits_for[at] == 0) ++at;
    std::vector<bool> seen(nodes_, false);
    while (!seen[at]) {
      seen[at] = true;
      at = held_by[at];
    }
    std::string text = describe_node(at);
    for (std::size_t n = held_by[at]; n != at; n = held_by[n]) text += " waits for " + describe_node(n);
    fail("a deadlock{}: {} waits for {}",
         order_ == Order::one_thread ? " of the threads that give devices their work" : "", text, describe_node(at));
  }

  std::span<const RoleProgram> roles_;
  std::span<const Group> groups_;
  Order order_;
  std::map<std::size_t, std::size_t> received_;  // by send: its receive, where both are one
  std::map<std::size_t, std::size_t> taken_;     // by send: its receive, where they are not
  std::vector<std::size_t> first_;               // node of each role's first instruction
  std::size_t nodes_ = 0;
  std::vector<std::size_t> same_;  // by node: the one that stands for it, of the members of a collective
  std::vector<std::vector<std::size_t>> after_;
  std::map<std::tuple<std::size_t, bool, int>, bool> used_;  // role, pushed?, key
  TogetherReport report_;
};

}  // namespace

TogetherReport check_together(std::span<const RoleProgram> roles, std::span<const Group> groups) {
  using Order = TogetherChecker::Order;
  const bool devices = std::any_of(roles.begin(), roles.end(),
                                   [](const RoleProgram& role) { return role.program->device != device::Kind::cpu; });
  const TogetherReport report = TogetherChecker(roles, groups, Order::streams).run();
  if (devices) TogetherChecker(roles, groups, Order::one_thread).run();
  return report;
}

std::uint64_t communication_digest(const Program& program) {
  std::string text = program.mesh.str();
  for (const Instruction& i : program.instructions)
    if (i.communicates()) {
      text += fmt::format("|{} {} {}", kind_of(i), i.stream, i.micro) + collective_text(i);
      for (std::size_t v = 0; v < i.of.size(); ++v) text += value_text(i, v);
    }
  return site_of(text);
}

std::uint64_t order_digest(const Program& program) {
  std::string text = fmt::format("{}", communication_digest(program));
  for (const Instruction& i : program.instructions) {
    text += fmt::format("|{} {} {} {}", static_cast<int>(i.kind), i.micro, i.stream, i.records);
    for (const std::int32_t event : i.waits) text += fmt::format(" {}", event);
  }
  return site_of(text);
}

}  // namespace trireme::program
