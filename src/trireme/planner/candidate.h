#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/passes/propagate.h"
#include "trireme/planner/remat_policy.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::planner {

// What decides the time and the bytes of a layer on one rank, apart from how many replicas and stages there are.
struct LayerKey {
  int tp = 1;
  int h = 1, w = 1;  // ranks that share the heights and widths of images
  bool sequence = false;
  std::int64_t micro_batch = 1;  // rows of one replica
  RematPolicy::Kind remat = RematPolicy::Kind::none;
  int sharding = 0;            // of Space::shardings
  std::string precision = {};  // empty: the configuration's
  // Ranks that work on one replica's rows of a layer.
  int ranks() const { return tp * h * w; }
  friend auto operator<=>(const LayerKey&, const LayerKey&) = default;  // NOLINT(modernize-use-nullptr): there is none
};

// What is offloaded to another tier, of a configuration that offloads nothing itself.
struct Offload {
  bool optimizer = false;
  bool activations = false;
  bool any() const { return optimizer || activations; }
  friend bool operator==(const Offload&, const Offload&) = default;
};
// "activations,optimizer", as memory.offload has it.
std::string offload_text(const Offload& offload);

// How gradients are communicated: as the configuration has it, or in another type.
enum class Compression : std::uint8_t { configured, bf16, int8 };
// As parallel.compress has it; empty: what the configuration has stays.
const char* compression_text(Compression compression);

// One point of the search: what the planner chooses. The rest of a plan is the configuration's.
struct Candidate {
  int pp = 1;
  int dp = 1;
  LayerKey layer = {};
  int zero = 0;
  program::PipelineName pipeline = {};
  std::vector<std::int64_t> stages = {};  // layers of each part; empty: as the compiler balances them
  Offload offload = {};
  Compression compress = {};  // of gradients

  int ranks() const { return pp * dp * layer.ranks(); }
  int parts() const { return pp * (pp > 1 ? pipeline.chunks : 1); }
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// "pp=4,dp=8,tp=8", without the axes of one.
std::string mesh_text(const Candidate& candidate);
// "interleaved:2".
std::string pipeline_text(const program::PipelineName& pipeline);
const char* remat_text(RematPolicy::Kind kind);
// In one line, for people: "pp=4,dp=8 · 1f1b · micro-batch 2 · ZeRO-1 · remat selective".
std::string describe(const Candidate& candidate);

// Where the search may look. A list of one is a choice that was made for it.
struct Space {
  int ranks = 1;
  bool fewer_ranks = false;                  // also halves of them, as far as that goes
  std::int64_t batch = 1;                    // rows of a step
  std::int64_t layers = 1;                   // that a pipeline may be cut between
  int max_tp = 1;                            // ranks of a node, at most
  bool tensor = true;                        // whether the model can be sharded over tp
  bool spatial = false;                      // whether h and w are axes too: it looks at images
  std::vector<Candidate> fixed_meshes = {};  // pp, dp and tp; empty: every factorisation
  std::vector<int> zero = {0, 1, 2, 3};
  std::vector<program::PipelineName> pipelines = {};
  std::vector<std::int64_t> micro_batches = {};  // empty: powers of two that divide a replica's rows
  std::vector<RematPolicy::Kind> remat = {};
  std::vector<bool> sequence = {false, true};
  int shardings = 1;
  std::vector<Offload> offload = {{}};
  std::vector<std::string> precisions = {""};
  std::vector<Compression> compressions = {Compression::configured};
  std::vector<std::vector<std::int64_t>> stages = {};  // empty: balanced by the layers' costs
};

// Every point of the space, in a fixed order. Points that mean the same come once: ZeRO needs replicas, a schedule
// stages, sequence parallelism tp.
std::vector<Candidate> enumerate(const Space& space);

// What hands would choose: data parallelism, ZeRO-3, and tensor parallelism within a node with a pipeline between
// nodes. Those of the space whose mesh is such a one.
bool is_well_known(const Candidate& candidate, const Space& space);

}  // namespace trireme::planner
