#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/compiler/graphs.h"
#include "trireme/compiler/plan.h"
#include "trireme/ir/slice.h"
#include "trireme/program/check.h"
#include "trireme/program/check_together.h"
#include "trireme/program/exchange.h"
#include "trireme/program/group.h"
#include "trireme/program/program.h"

namespace trireme::compiler {

// What all ranks share that differ only in their coordinate: a module, where its state lies, and its programs.
//
//   init      start values from the seed
//   refresh   derived copies after the state was set from outside
//   step …    one update; several such programs where steps differ (see Compiled::step_program)
//   fill, step …, drain …   of an asynchronous pipeline (see Role::InFlight)
//   eval      the loss of one micro-batch, forward only
//   predict   logits of one row
//   decode, prefill…   continue a sequence by one token, or by a piece of a prompt (see Compiled::prefill)
struct Role {
  std::string name;
  std::string kind = "worker";  // what its ranks are called
  // Where its ranks are along the axes at whose places programs differ: the stage of a pipeline, and the places along h
  // and w.
  std::map<std::string, int> places = {};
  ir::Module module;
  program::StateLayout layout;
  std::vector<program::Program> programs;
  std::size_t host_staging = 0;  // for checkpoints, in the host's memory where that is not the device's
  std::size_t arena_bytes = 0;   // of the largest program: the planned peak
  std::array<std::size_t, program::kTiers> tier_bytes{};  // likewise of the other tiers; [0] is unused
  // Of a role that takes no rows of the batch: how it answers the messages of those that do.
  std::optional<program::Exchange> exchange = {};
  // A stage of an asynchronous pipeline. The first step after the pipeline was empty is `fill`, later ones "step" and
  // others like it in turn, and "drain" or one like it completes what is in flight (compiler/async_stage.h).
  struct InFlight {
    int micro_batches = 0;  // between two steps
    int period = 1;         // programs that differ by where they keep what is in flight
    bool each = true;       // every micro-batch has its update
  };
  std::optional<InFlight> in_flight = {};

  // Whether its ranks take rows of the batch. Those that do not come last, and answer messages.
  bool takes_rows() const { return !exchange.has_value(); }
  // Null where the role has no program of that name.
  const program::Program* find(std::string_view program) const;
  const program::Program& program(std::string_view name) const;
  // What its ranks run while those that take rows do a step by a program of that name; null where it has none.
  const program::Program* during(std::string_view step) const;
  const program::Program& largest() const;
  // Elements of parameters that one of its ranks stores.
  std::uint64_t stored_parameters() const;
  // "receives 1,024 B from each worker a step and sends 512 B"; empty of a role that takes rows.
  std::string messages_text() const;
};

// Where a rank of the run belongs: its role, and its number in the mesh of the role's module.
struct Seat {
  std::size_t role = 0;
  int number = 0;
};

// One of the programs that do a step, and the first step that it does.
struct StepProgram {
  std::string program;
  std::int64_t from = 0;
};

// One of the programs that continue a sequence: takes up to `rows` tokens of a prompt. That of one row decodes.
struct Prefill {
  std::string program;
  std::int64_t rows = 0;
};

// The group in which the ranks of an asynchronous pipeline report their steps (Group::messages).
inline constexpr const char* kReports = "reports";

// The programs of a run, by role.
struct Compiled {
  Plan plan;
  ir::Mesh mesh;  // of the ranks that take rows of the batch: the first of the run
  std::vector<Role> roles;
  std::vector<Seat> seats;  // by rank of the run
  std::vector<program::Group> groups;
  std::vector<StepProgram> steps;    // by rising first step
  std::vector<Prefill> prefill;      // by rising rows, decode first
  program::CheckReport checked;      // over all programs of the roles that take rows
  program::TogetherReport together;  // of the proof that all roles fit together, for all that they run together
  std::uint64_t model_parameters = 0;
  std::int64_t micro_rows = 0;  // of all replicas together
  int micro_batches = 1;
  bool targets_alone = false;               // as Graphs::targets_alone
  int replicas = 1;                         // ranks that share the rows
  std::int64_t cache_rows = 0;              // tokens of a sequence that the caches hold
  std::map<std::string, Shape> row_shapes;  // by input that goes by rows: the shape of one, whole

  device::Kind device() const { return plan.device; }
  int ranks() const { return static_cast<int>(seats.size()); }
  // How many take no rows, by their kind, and their pace; empty: none.
  std::string other_ranks() const;
  const Seat& seat(int rank) const { return seats[static_cast<std::size_t>(rank)]; }
  const Role& role_of(int rank) const { return roles[seat(rank).role]; }
  // The position of a rank along each axis of its role's mesh.
  std::vector<int> coordinate(int rank) const;
  // Which of the `replicas` shares of a micro-batch's rows a rank takes.
  int row_shard(int rank) const;
  // What a rank reads of an input of its role's graph "micro" or "eval" that goes by rows: rows of a micro-batch, and
  // of these what the input's sharding says.
  ir::Slice input_slice(int rank, const std::string& graph, const std::string& input) const;
  // The rows of a micro-batch in which all lies that a rank reads.
  ir::Range rows_read(int rank) const;
  // The ranks that `rank` meets in a group, itself among them, in the order of their coordinates; none where it is no
  // member.
  std::vector<int> members(const program::Group& group, int rank) const;
  // The programs that do steps, each once.
  std::vector<std::string> step_programs() const;
  // The name of the program that does a step, counted from 0.
  const std::string& step_program(std::int64_t step) const;
  // Whether every step of every rank ends with the same weights; otherwise ranks go at their own pace.
  bool synchronous() const;
  // Whether they are stages of a pipeline that is not empty between two steps.
  bool asynchronous_pipeline() const { return roles.front().in_flight.has_value(); }
  // The largest planned peak of any rank.
  std::size_t arena_bytes() const;
  std::size_t tier_bytes(int tier) const;
  std::uint64_t parameters() const { return model_parameters; }
  // All that checkpoints hold, each state once, as one of the roles that store it has it.
  std::vector<ir::State> saved_states() const;
};

}  // namespace trireme::compiler
