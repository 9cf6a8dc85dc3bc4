#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/passes/loss_scale.h"
#include "trireme/passes/optimizer.h"

namespace trireme::compiler {

// What the programs are for: state that a purpose does not need is not part of its layout.
enum class Purpose {
  train,     // init, refresh, step, eval, predict
  evaluate,  // init, refresh, eval
  generate,  // init, refresh, decode, prefill…
};

// What is computed, before any technique: the model's forward graphs, and how it is trained. The other half of what
// `compile` takes, a Plan, says how.
struct Graphs {
  Purpose purpose = Purpose::train;
  // "micro" (train), "eval", "predict" and those that continue a sequence, as the model builds them for one micro-batch
  // of all replicas together.
  ir::Module module;
  std::vector<std::string> row_inputs = {};  // those inputs whose first dimension is the rows
  std::int64_t micro_rows = 1;               // rows of one micro-batch, all replicas' together
  int micro_batches = 1;
  bool targets_alone = false;              // a row without targets adds nothing to the loss of "eval"
  std::vector<std::int64_t> prefill = {};  // tokens that each graph which continues a sequence takes, rising
  std::int64_t cache_rows = 0;             // tokens of a sequence that the caches are to hold
  passes::Optimizer::Options optimizer = {};
  passes::LossScale::Options loss_scale = {};  // used by fp16
};

// The graph that continues a sequence by so many tokens: "decode" for one, "prefill32" for a piece of a prompt.
std::string prefill_graph(std::int64_t rows);

// A short digest of the model: the names and types of its states, and the ops, attributes and types of its graph and
// what each node reads, for any number of rows in a step and in a micro-batch. It begins with the number of its form:
// "2-6a09e667f3bcc908".
std::string digest_of(const Graphs& graphs);
// Whether that is the model's digest, in this form or in the first one, which had no number and did not say what a node
// reads: plans that have it are still followed.
bool is_digest_of(std::string_view digest, const Graphs& graphs);

}  // namespace trireme::compiler
