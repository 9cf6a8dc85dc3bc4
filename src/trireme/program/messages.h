#pragma once
#include <string>

#include "trireme/program/program.h"

namespace trireme::program {

// How many messages of a kind may be on their way, in addition to the last one, when a further action of that kind
// starts; 0: any number. What is needed follows from the schedule (sends_in_flight).
struct MessageOptions {
  int activations = 0;
  int gradients = 1;
};

// Gives the messages between stages streams of their own: computing waits for what is received, and not for what is
// sent.
//
//   compute    F0 ───── F1 ───── B0 …
//   send         └ %x₀ ───┴ %x₁
//
// The memory of a sent value is free once its send is done. The compute stream waits for that as late as it can: as
// many sends as the options say may be in flight when it computes what is sent next; the send of an activation is done
// before the backward of its micro-batch starts. Reductions over replicas that run
// once per step start after the last gradient was sent, because another stage waits for it.
void schedule_messages(Program& program, const MessageOptions& options);

// The process group of a message: "activation 0-1" is what stage 0 sends to stage 1.
std::string message_group(const std::string& channel, int from, int to);
std::string message_group(const Instruction& message);

}  // namespace trireme::program
