#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/program/check.h"
#include "trireme/program/collectives.h"
#include "trireme/program/copies.h"
#include "trireme/program/messages.h"
#include "trireme/program/program.h"
#include "trireme/program/schedule/action.h"
#include "trireme/program/weight_gradients.h"

namespace trireme::program {

// Reports of the passes over a program (pass.h).
struct PassReports {
  std::filesystem::path dump = {};  // numbered files "14-step-collectives.txt"; empty: none
  std::size_t first_number = 0;     // of the program as it is emitted: one behind the graph passes' last
  std::function<void(const std::string& pass, double seconds)> on_pass = {};
  CheckReport* checked = nullptr;  // of the full check once memory is planned; null: it is not made
};

// One run of a graph in a program that is not made of one graph's micro-batches: an asynchronous pipeline's.
struct GraphCall {
  std::string graph;
  std::int32_t micro = 0;
  // States that it uses in the place of those that the graph names: a slot of those of which there are several.
  std::vector<std::pair<ir::StateId, ir::StateId>> states = {};
  bool ends_sums = false;  // the next contribution to a sum sets it anew
};

struct LowerOptions {
  std::string name = "step";
  std::string body = "micro";                 // run once per micro-batch
  std::vector<std::string> before_tail = {};  // graphs that are run once after them, where there are such,
  std::string tail = {};                      // and then this one ("update"); empty: none
  std::vector<std::string> after_tail = {};   // and these behind it, where there are such
  int micro_batches = 1;
  int chunks = 1;  // of a pipeline's stage: a node's chunk is its `stage`
  int threads = 1;
  device::Kind device = {};
  bool reuse_in_place = true;  // off: outputs never share a dying input's buffer
  CopyOptions copies = {};     // between memory tiers
  CollectiveOptions collectives = {};
  MessageOptions messages = {};
  WeightGradientOptions weight_gradients = {};
  bool defer_gradients = true;  // to overlap collectives with them, where they have no stream (deferred_gradients.h)
  std::vector<Action> actions = {};  // the order of micro-batches and phases; empty: plain_order
  std::string order = {};            // where the actions are from, for a person to whom they are refused
  // In the place of body, tail and actions: what is run, in order. Sums that are persistent states have contributions
  // from the program before where `sums_begun`.
  std::vector<GraphCall> calls = {};
  bool sums_begun = false;
  PassReports reports = {};
};

// Turns graphs into plain instructions, in the order of the actions: micro-batches unrolled, views resolved, sums
// accumulated into their state's buffer (by the kernel itself where it can). What a micro-batch saves lives from its
// forward action to its last use. Refuses actions that are in no valid order.
Program emit(const ir::Module& module, const StateLayout& layout, const LowerOptions& options);

// A rank's program as it runs: what is emitted, rewritten by the program passes (pass.h).
// Throws when an op has no kernel for its types on the device.
Program lower(const ir::Module& module, const StateLayout& layout, const LowerOptions& options);

}  // namespace trireme::program
