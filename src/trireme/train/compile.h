#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/compiler/compile.h"
#include "trireme/planner/decide.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::train {

using compiler::Compiled;
using compiler::Purpose;
using compiler::Role;

// What was decided, apart from the keys.
struct Decisions {
  std::string file;   // for messages
  std::string model;  // digest_of the graphs it was made for
  device::Kind device = device::Kind::cpu;
  // That the scratch of its collectives was planned for; a run takes that of its own. Nothing: of a plan from before it
  // was named, of one rank, or for GPUs.
  std::optional<comm::TransportKind> transport = {};
  std::optional<std::vector<std::string>> recompute = {};
  std::vector<std::string> offload_activations = {};
  std::vector<std::string> offload_states = {};
  std::optional<std::vector<std::string>> offload_reloads = {};  // nothing: of a plan from before they were listed
  std::size_t staging = 0;
  std::vector<int> max_held = {};                           // of zero-bubble:auto: one for all stages, or one each
  std::optional<std::vector<std::string>> stage_cuts = {};  // nothing: of a plan from before they were listed
  std::vector<std::string> schedule = {};                   // lines of that of file:PATH
  bool required = true;  // false: of a run that is resumed; made anew where it is for another model
};

struct CompileOptions {
  int threads = 1;
  std::size_t staging = 0;        // for checkpoints, at most; no more is taken than the saved state needs
  bool staging_gives_way = true;  // where memory.limit is short of it: decisions leave room for the least of it
  Purpose purpose = Purpose::train;
  bool step_alone = false;  // train: without the programs that evaluate and predict, for those who only look at a step
  comm::TransportKind transport = comm::TransportKind::threads;
  int local_ranks = 0;                    // on this machine; 0: all
  std::optional<Decisions> decided = {};  // by a plan that was read; nothing: the planner decides
  std::int64_t sequence = 0;              // generate: the longest sequence there will be; 0: the model's context
  // evaluate: what the linear layers read is summed up (passes/observe_inputs.h).
  std::optional<passes::QuantizeWeights::Options> observe = {};
  // evaluate: how large it is (passes/observe_ranges.h).
  std::optional<passes::QuantizeWeights::Options> observe_ranges = {};
  std::filesystem::path dump_passes = {};
  std::vector<std::string> disabled_passes = {};
  std::function<void(const std::string& pass, double seconds)> on_pass = {};
};

// A configuration, ready to be compiled: what is computed, and how.
struct Planned {
  compiler::Graphs graphs;
  compiler::Plan plan;
  std::optional<planner::Choice> choice = {};  // what memory.limit led to, where it left something to choose
  std::string device_note = {};  // why a run computes on the CPU though there are GPUs; empty: it does not
  bool stale = false;            // a plan that was read is for another model, and this one was decided anew
};

// Builds the model's graphs and settles the plan. The model's vocabulary must be known (see resolve_model). `registry`
// must outlive the result. Refuses, by key, what this configuration cannot have.
Planned make_plan(const Config& config, const Registry& registry, const CompileOptions& options);
// Checked programs of what was planned.
Compiled compile(const Planned& planned, const Config& config, const CompileOptions& options);
// Both.
Compiled compile(const Config& config, const Registry& registry, const CompileOptions& options);

// runtime.device where so many ranks are on this machine (train/device_choice.h); 0: all.
device::Kind device_of(const Config& config, int local_ranks = 0);
// The transport that a plan is made for where nothing is run: what runtime.transport or runtime.link ask for, else that
// of the plan that is followed.
comm::TransportKind transport_of(const Config& config, const std::optional<Decisions>& followed);

// Fills in what the model's family decides, and the vocabulary; refuses impossible shapes by key.
void resolve_model(Config& config, std::int64_t data_vocab,
                   const models::Families& families = models::builtin_families());

// Compute threads per rank: the configured number, or the cores this process may use, shared out.
// `sharing` ranks are on this machine; 0: all of the mesh. Where the launcher has bound this process to some cores,
// they are its own.
int compute_threads(const Config& config, int sharing = 0);

// parallel.allreduce.
comm::Algorithm algorithm_of(const Config& config);

// Whether memory.offload moves weights or optimizer states.
bool offloads_state(const Config& config);

// Rows per micro-batch, all replicas' together: refuses a micro-batch that does not divide a replica's share.
std::int64_t micro_batch_rows(const Config& config);

// The ranks of a run that take rows of the batch: parallel.mesh, where "auto" and "*" stand for as many as were
// launched.
ir::Mesh mesh_of(const Config& config, int launched = 1);
// Of all roles: those of the mesh, and those beyond it that take no rows of the batch.
int ranks_of(const Config& config);
// parallel.mesh for as many ranks as were launched (1: none were, and ranks are threads). Refuses another number than
// the run needs; where `shortfall` is given, says so there.
std::string launched_mesh(const Config& config, int launched, std::string* shortfall = nullptr);

}  // namespace trireme::train
