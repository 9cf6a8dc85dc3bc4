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
// What was sent may be written over when the send is done. The compute stream makes sure of that where it costs
// nothing: of gradients the last two may be on their way when a further one is made, of activations as many as the
// options say; and an activation has arrived when the backward of its micro-batch begins. Sums of gradients over
// replicas that are made once a step start when the last gradient has left: another stage waits for it.
void schedule_messages(Program& program, const MessageOptions& options);

// The process group of a message: "activation 0-1" is what stage 0 sends to stage 1.
std::string message_group(const std::string& channel, int from, int to);
std::string message_group(const Instruction& message);

}  // namespace trireme::program
