#pragma once
#include <optional>
#include <vector>

#include "trireme/program/schedule/schedule.h"

namespace trireme::program {

// What one stage sends to another: the activations that a forward has made, or the gradients of what a backward has
// read.
struct StageMessage {
  enum class Kind { activation, gradient };
  Kind kind = Kind::activation;
  int from = 0;
  int to = 0;
  int chunk = 0;  // of the sender
  int micro = 0;
  friend bool operator==(const StageMessage&, const StageMessage&) = default;
};

// What an action of a stage waits for, and what it sends afterwards. The parts of the model follow each other over the
// stages and then over the chunks, so the last stage's chunk v sends to stage 0's chunk v + 1. With one stage nothing
// is sent. A W and the update send nothing: the gradient that leaves a stage is B's.
std::optional<StageMessage> received_by(const Schedule& schedule, int stage, const Action& action);
std::optional<StageMessage> sent_by(const Schedule& schedule, int stage, const Action& action);

// The action on the receiver's or sender's side of a message.
Action receiver(const Schedule& schedule, const StageMessage& message);
Action sender(const StageMessage& message);

// A message as its sender or receiver meets it.
struct Transfer {
  StageMessage message;
  bool send = false;       // else it is received
  std::size_t action = 0;  // receives come before this action of the stage, sends after it
};

// By stage, in program order. All messages of one kind that a stage sends have one receiver.
std::vector<std::vector<Transfer>> transfers(const Schedule& schedule, const StageActions& actions);

}  // namespace trireme::program
