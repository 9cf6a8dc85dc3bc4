#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/train/compile.h"

namespace trireme::train {

// A plan as text: the configuration's keys that say how a model is trained, and what was decided under them, by the
// names of values and states. Kept in the run folder as plan.toml and read again by `train --plan FILE`; it may be
// edited.
//
//   model = "2-6a09e667f3bcc908"
//   [parallel]
//   mesh = "dp=2"
//   zero = 1
//   [decisions]
//   device = "cpu"
//   transport = "threads"       # of ranks on CPUs: that the scratch of collectives was planned for
//   recompute = ["blocks.0.ln1", "blocks.0.mlp.gelu"]
//   offload_activations = []
//   offload_states = []
//   offload_reloads = []        # "wte.weight before head.logits": loaded again, not kept since the reader before
//   staging = 1048576
//   stage_cuts = ["blocks.2.ln1.layer_norm"]   # first values of a pipeline's stages, or chunks, behind the first
//   schedule = ["F0 F1 B0 B1 U", "F0 B0 F1 B1 U"]   # of pipeline = "file:PATH", as it was when the plan was made
//   held = 3                    # zero-bubble:auto under a limit: micro-batches that a stage holds
std::string plan_text(const Config& config, const Planned& planned);

struct PlanFile {
  std::vector<std::string> settings;  // "parallel.mesh=dp=2": overrides as load_config takes them
  Decisions decisions;
  std::vector<std::string> missing = {};  // keys that plans fix and this one does not name
};
// Whether a plan fixes the key, "memory.remat", or one below it, "parallel.sharding.PATTERN".
bool names_plan_key(const std::string& name, const models::Families& families);
// Whether a file was written as a plan, by its first line.
bool is_plan(const std::filesystem::path& path);
// Whether a plan must name every key that plans fix. That of a run which is resumed need not: it may have been written
// before some of them existed, and the run's own configuration has the rest.
enum class PlanKeys { all, some };
// Of a file, or of a run folder. Refuses what is no plan, with file and line.
PlanFile read_plan(const std::filesystem::path& file, PlanKeys whole = PlanKeys::all);
// Its text; `of_run`: as an earlier version may have written it for a run that is resumed.
PlanFile parse_plan(std::string_view text, const std::string& file, PlanKeys whole = PlanKeys::all,
                    bool of_run = false);

// Why the plan of a run that is resumed by so many processes, some of them on this machine, cannot be followed; empty:
// it can, and its keys are those of `config` once "auto" is resolved.
std::string why_not_followed(const PlanFile& plan, const Config& config, int launched, int local_ranks);
// A configuration under a plan: load_config with the plan's keys over the file's. Refuses, naming both values, an
// override that contradicts the plan, another plan in parallel.plan, and annotations of the file that the plan lacks.
Config load_config_under(const PlanFile& plan, const std::string& source, std::span<const std::string> overrides,
                         const models::Families& families);

// A configuration and the decisions that it follows: those of the plan of that name, of parallel.plan where none is
// named and that names a file, or nothing.
struct Followed {
  Config config;
  std::optional<Decisions> plan = {};
};
Followed load_followed(std::string plan, const std::string& source, std::span<const std::string> overrides,
                       const models::Families& families);
// The same for what is only to be shown: a run whose file of parallel.pipeline = "file:PATH" is gone is shown under its
// own plan, which has kept the schedule.
Followed load_shown(const std::string& plan, const std::string& source, std::span<const std::string> overrides,
                    const models::Families& families);

}  // namespace trireme::train
