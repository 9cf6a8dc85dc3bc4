#pragma once
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/transport.h"
#include "trireme/passes/pass.h"
#include "trireme/passes/server.h"
#include "trireme/planner/memory_limit.h"
#include "trireme/program/check.h"
#include "trireme/program/exchange.h"
#include "trireme/program/memory_plan.h"
#include "trireme/program/program.h"
#include "trireme/train/config.h"
#include "trireme/train/registry.h"

namespace trireme::train {

// What the programs are for: state that a purpose does not need is not part of its layout.
enum class Purpose {
  train,     // init, derive, step, eval, predict
  evaluate,  // init, derive, eval
  generate,  // init, derive, advance
};

// One of the programs that continue a sequence: takes up to `rows` tokens.
struct Advance {
  std::int64_t rows = 0;
  program::Program program;
};

// parallel.server, taken apart.
struct ServerMode {
  bool each = false;                  // async, ssp: every push is an update
  std::optional<std::int64_t> bound;  // ssp
};

// The programs of a run over one layout of its state. Those that its purpose has no use for are empty.
struct Compiled {
  ir::Module module;
  device::Kind device = device::Kind::cpu;
  program::StateLayout layout;
  std::size_t host_staging = 0;  // for checkpoints, in the host's memory where that is not the device's
  program::Program init;         // start values from the seed
  program::Program derive;       // derived copies after the state was set from outside
  program::Program step;         // micro-batches, then the update
  program::Program warm_step;    // the same for the first `warm_steps` steps, where their update is another
  program::Program eval;         // the loss of one micro-batch, forward only
  program::Program predict;      // logits of one row; empty for image models
  std::vector<Advance> advance;  // by rising number of rows, the first with one
  std::int64_t cache_rows = 0;   // tokens of a sequence that the caches hold
  program::CheckReport checked;  // over all of them
  std::int64_t micro_rows = 0;   // of all replicas together
  int micro_batches = 1;
  std::int64_t warm_steps = 0;
  int replicas = 1;  // that share the rows
  // Of parallel.server: what each server rank runs (init, derive, and as `step` one update), and what it keeps.
  std::vector<Compiled> servers;
  std::optional<ServerMode> mode;
  std::vector<passes::ServerKey> keys;                    // of a server: what it keeps
  program::Exchange exchange;                             // of a server: what it receives and sends
  std::size_t arena_bytes = 0;                            // the largest of the programs: the predicted peak
  std::array<std::size_t, program::kTiers> tier_bytes{};  // alike for the other tiers; [0] is unused
  // Where memory.limit left something to decide (memory.remat = "optimal", memory.offload_policy = "dynamic").
  std::optional<planner::Choice> choice;
  // Alike (memory.offload of weights or optimizer states): the parameters of which they leave.
  std::optional<std::size_t> moved_parameters;

  const program::Program& largest() const;
  std::uint64_t parameters() const;
  // All that checkpoints hold, whoever keeps it: each state once, `type` of what one keeper has.
  std::vector<ir::State> saved_states() const;
  // Workers and servers.
  int ranks() const { return module.mesh.ranks() + static_cast<int>(servers.size()); }
};

struct CompileOptions {
  int threads = 1;
  std::size_t staging = 0;        // for checkpoints, at most; no more is taken than the saved state needs
  bool staging_gives_way = true;  // where memory.limit is short of it: decisions leave room for the least of it
  Purpose purpose = Purpose::train;
  comm::TransportKind transport = comm::TransportKind::threads;
  std::optional<planner::Choice> choice = {};  // decided before: as in Compiled
  std::optional<std::size_t> moved_parameters = {};
  std::int64_t sequence = 0;  // generate: the longest sequence there will be; 0: the model's context
  std::filesystem::path dump_passes = {};
  std::vector<std::string> disabled_passes = {};
  std::function<void(const std::string& pass, double seconds)> on_pass = {};
  std::size_t first_program_pass = 0;  // number in the dump, behind the graph passes'; `compile` sets it
};

// From a configuration to checked programs. The model's vocabulary must be known (see resolve_model). `registry` must
// outlive the result.
Compiled compile(const Config& config, const Registry& registry, const CompileOptions& options);

// runtime.device; auto: CUDA where there is a GPU for every rank. Refuses a device that this build does not know.
device::Kind device_of(const Config& config);

// Fills in what the model's family decides, and the vocabulary; refuses impossible shapes by key.
void resolve_model(Config& config, std::int64_t data_vocab,
                   const models::Families& families = models::builtin_families());

// Compute threads per rank: the configured number, or the cores this process may use, shared out.
// `sharing` ranks are on this machine; 0: all of the mesh. Where the launcher has bound this process to some cores,
// they are its own.
int compute_threads(const Config& config, int sharing = 0);

// Whether memory.offload moves weights or optimizer states.
bool offloads_state(const Config& config);

// Rows per micro-batch, all replicas' together: refuses a micro-batch that does not divide a replica's share.
std::int64_t micro_batch_rows(const Config& config);

// What parallel.server asks for; nothing: no servers.
std::optional<ServerMode> server_mode(const Config& config);
int server_ranks(const Config& config);
// Refuses workers that are to run apart and wait for each other in every step all the same.
void check_server_mode(const Compiled& compiled, const Config& config);

// The ranks of a run: parallel.mesh, where "auto" and "*" stand for as many as were launched.
ir::Mesh mesh_of(const Config& config, int launched = 1);

}  // namespace trireme::train
