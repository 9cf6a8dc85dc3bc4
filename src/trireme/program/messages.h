#pragma once
#include <string>

#include "trireme/program/program.h"

namespace trireme::program {

struct MessageOptions {
  // Activations that may be on their way, in addition to the last one, when a further forward action starts; 0: any
  // number. What is needed follows from the schedule (sends_in_flight).
  int activations = 0;
};

// Gives the messages between stages streams of their own: computing waits for what is received, and not for what is
// sent.
//
//   compute    F0 ───── F1 ───── B0 …
//   send         └ %x₀ ───┴ %x₁
//
// The memory of a sent value is free once its send is done. The compute stream waits for that as late as it can: two
// sends of gradients may be in flight when it computes a third, and as many sends of activations as the options say;
// the send of an activation is done before the backward of its micro-batch starts. Reductions over replicas that run
// once per step start after the last gradient was sent, because another stage waits for it.
void schedule_messages(Program& program, const MessageOptions& options);

// The process group of a message: "activation 0-1" is what stage 0 sends to stage 1.
std::string message_group(const std::string& channel, int from, int to);
std::string message_group(const Instruction& message);

}  // namespace trireme::program
