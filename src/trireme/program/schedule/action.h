#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::program {

// One step of the order in which a rank works: a phase of a micro-batch, or the update. Micro-batches and chunks count
// from 0.
//
// The whole backward of a micro-batch is one action: a B without a W of the same micro-batch and chunk makes the
// gradients of inputs and of weights. With a W, B makes the gradients of inputs alone.
struct Action {
  enum class Kind { forward, backward, weight_gradient, update };
  Kind kind = Kind::forward;
  int micro = 0;
  int chunk = 0;  // of the rank's part of the model
  friend bool operator==(const Action&, const Action&) = default;
};

// "F0 F1 B0 W0 U"; the chunk follows a dot unless it is 0: "F0.1".
std::string to_text(const Action& action);
std::string to_text(std::span<const Action> actions);
// Refuses what is no action, by its text.
std::vector<Action> parse_actions(std::string_view text);

// What the graphs of a program have, and actions therefore must.
struct ActionNeeds {
  int micro_batches = 1;
  bool backward = true;  // the body has gradients
  bool update = true;    // there is a tail
  int chunks = 1;        // each of which runs every micro-batch
};

// F0 B0 F1 B1 … U: each micro-batch to its end, forwards through the chunks and back. B stands for both kinds of
// gradients.
std::vector<Action> plain_order(const ActionNeeds& needs);

// Refuses, by the actions' texts, an order in which an action is missing, superfluous or comes twice; a micro-batch's
// actions are not in the order F, B, W (W may be left out: then B makes all gradients); or the update is not the last.
void check_actions(std::span<const Action> actions, const ActionNeeds& needs);

}  // namespace trireme::program
