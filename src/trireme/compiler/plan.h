#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/transport.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/compress_activations.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/compress_messages.h"
#include "trireme/passes/offload.h"
#include "trireme/passes/propagate.h"
#include "trireme/passes/prune.h"
#include "trireme/passes/quantize_weights.h"
#include "trireme/passes/server.h"
#include "trireme/program/schedule/generate.h"

namespace trireme::compiler {

enum class Precision : std::uint8_t { f32, tf32, bf16, fp16, fp8 };

// The mesh axis over which the rows of the batch are sharded.
inline constexpr const char* kRowAxis = ir::kDataAxis;

// How a model is trained: everything that `compile` carries out, decided. Plain data; compiling the same graphs under
// the same plan gives the same programs. The options come from the configuration, the decisions (`stage_cuts`,
// `recompute`, `offload`'s names) from the planner or from a file.
struct Plan {
  ir::Mesh mesh;
  device::Kind device = device::Kind::cpu;
  int threads = 1;  // compute threads of each rank
  comm::TransportKind transport = comm::TransportKind::threads;

  Precision precision = Precision::f32;
  // Of parameters, inputs and values, beyond the rows of the batch.
  std::vector<passes::Annotation> sharding = {};
  int zero = 0;
  bool own_statistics = false;  // batch norms take those of each rank's own rows
  bool async_tp = false;        // products in parts, to be overlapped with the collectives before and behind them
  // Of a mesh with an axis pp: the order of the stages' work, the layers that each part is asked to have (empty: it is
  // the planner's to balance them), and the forward values with which the parts behind the first begin.
  program::PipelineName pipeline = {};
  std::optional<program::Schedule> schedule_given = {};  // file:PATH: what the file says
  std::vector<int> max_held = {};  // zero-bubble:auto: micro-batches that each stage may hold; empty: any number
  std::vector<std::int64_t> stage_layers = {};
  std::vector<std::string> stage_cuts = {};
  std::optional<passes::CompressMessages::Kind> messages = {};  // between stages; nothing: sent as they are
  std::optional<passes::CompressGradients::Options> compress = {};
  std::optional<passes::CompressActivations::Kind> activations = {};  // nothing: saved as they are
  std::optional<passes::ServerOptions> server = {};
  std::optional<passes::Prune::Options> prune = {};  // nothing: every element is trained

  // Outside training: weights stored as codes; what linear layers read is summed up.
  std::optional<passes::QuantizeWeights::Options> weights = {};
  std::optional<passes::QuantizeWeights::Options> observed = {};
  std::optional<passes::QuantizeWeights::Options> ranged = {};  // or how large it is
  bool int8_inputs = false;                                     // linear layers of codes read integers too
  bool int8_cache = false;                                      // keys and values of earlier tokens in 8 bits
  // In training: weights are rounded to codes where they are read.
  std::optional<passes::QuantizeWeights::Options> rounded = {};

  std::size_t bucket = std::size_t{25} << 20;  // bytes of gradients reduced together
  bool overlap = true;                         // collectives on a stream of their own
  comm::Algorithm allreduce = comm::Algorithm::automatic;
  bool overlap_wgrad = false;  // weight gradients on a stream of their own

  // Values of the forward phase that are recomputed for the backward pass, by name; nothing: the pass is left out.
  std::optional<std::vector<std::string>> recompute = {};
  // Values and states that are offloaded, by name, and for which readers states are loaded again; nothing: the pass is
  // left out.
  std::optional<passes::Offload::Options> offload = {};

  // Bytes in which checkpoints are staged, at most: no more is taken than the saved state needs.
  std::size_t staging = 0;

  // Whether heights or widths of images are sharded.
  bool is_spatial() const { return mesh.size_of(ir::kHeightAxis) * mesh.size_of(ir::kWidthAxis) > 1; }
  int stages() const { return mesh.size_of(ir::kPipelineAxis); }
  // In which order the stages work.
  program::Schedule schedule(int micro_batches) const {
    return program::make_schedule({.pipeline = pipeline,
                                   .stages = stages(),
                                   .micro_batches = micro_batches,
                                   .max_held = max_held,
                                   .given = schedule_given});
  }
  // Of each parameter in a step: asynchronous ranks update it each for itself, and so do micro-batches of a pipeline
  // that does not delay it.
  std::int64_t updates_per_step(int micro_batches) const {
    if (server && server->each) return server->workers;
    if (stages() == 1) return 1;
    const program::Schedule order = schedule(micro_batches);
    return order.asynchronous() && !order.delayed ? micro_batches : 1;
  }
  // Of the model, each of which is a chunk of a stage.
  int parts() const { return stages() * (stages() > 1 ? pipeline.chunks : 1); }
};

}  // namespace trireme::compiler
