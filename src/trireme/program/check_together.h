#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/program/exchange.h"
#include "trireme/program/group.h"
#include "trireme/program/program.h"

namespace trireme::program {

// What the ranks of a role run in a step. One rank stands for all of them: they run the same program.
struct RoleProgram {
  std::string role;  // for messages
  const Program* program = nullptr;
  std::vector<int> ranks = {};         // of the run
  const Exchange* exchange = nullptr;  // it takes all pushes before its program and answers all pulls behind it
  std::vector<int> peers = {};         // ranks of the run that its pushes and pulls number; empty: all of them
  std::string at = {};                 // which of the roles of its stage it is: messages go between those at one place
};

// What the check below has proved, for people.
struct TogetherReport {
  std::size_t collectives = 0;  // of the run: each counted once, however many roles take part
  std::size_t messages = 0;     // pairs of a push or a pull and what takes or answers it, or of a send and its receive

  TogetherReport& operator+=(const TogetherReport& other) {
    collectives += other.collectives;
    messages += other.messages;
    return *this;
  }
};

// Proves that programs which run together cannot wait for each other for ever, at any timing.
//
// Pairs every collective with those of the other roles of its group, by their order in it, and every push and pull with
// the entry of its peer's exchange, by key, and every send with the receive of the same ordinal in its group; both
// sides must move the same bytes in the same type, and what they move must be the same value of the same micro-batch,
// by its name. Then one graph of all instructions, in which the members of a collective are one node and so are a send
// and its receive, must have no cycle: an instruction follows the one before it on its stream and those whose events it
// waits for, what takes pushes follows them, and a pull follows what answers it. On a device, whose streams one thread
// gives their work, the same is proved of these threads: there a sender goes on, and waits for the receiver where
// something waits for the event of the send. A step that is run again to name the tensor that went bad has the same
// order (Executor::run_checked). Throws, naming the instructions and their roles, on a mismatch or a cycle.
TogetherReport check_together(std::span<const RoleProgram> roles, std::span<const Group> groups);

// A digest of what a program exchanges with other ranks: the same for two programs that can run together as one role.
std::uint64_t communication_digest(const Program& program);
// The same, and in which order its instructions follow each other: all that check_together reads of a program, so that
// what it proves of one is proved of all with this digest.
std::uint64_t order_digest(const Program& program);

}  // namespace trireme::program
