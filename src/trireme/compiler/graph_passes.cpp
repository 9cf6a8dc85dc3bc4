#include "trireme/compiler/graph_passes.h"

#include "trireme/compiler/async_stage.h"
#include "trireme/passes/async_tp.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/bucket.h"
#include "trireme/passes/cleanup.h"
#include "trireme/passes/compress_messages.h"
#include "trireme/passes/fp8.h"
#include "trireme/passes/fuse.h"
#include "trireme/passes/in_flight.h"
#include "trireme/passes/initial.h"
#include "trireme/passes/last_row.h"
#include "trireme/passes/observe_inputs.h"
#include "trireme/passes/observe_ranges.h"
#include "trireme/passes/partition.h"
#include "trireme/passes/precision.h"
#include "trireme/passes/propagate.h"
#include "trireme/passes/quantize_weights.h"
#include "trireme/passes/remat.h"
#include "trireme/passes/round_inputs.h"
#include "trireme/passes/round_weights.h"
#include "trireme/passes/sequence_cache.h"
#include "trireme/passes/split.h"
#include "trireme/passes/stage.h"
#include "trireme/passes/tf32.h"
#include "trireme/passes/validate.h"
#include "trireme/passes/zero.h"

namespace trireme::compiler {
namespace {

// As far as the passes of all roles are the same.
void add_common(passes::Pipeline& p, const Graphs& graphs, const Plan& plan, const passes::Places& at) {
  const bool trains = graphs.purpose == Purpose::train;
  const bool fp16 = plan.precision == Precision::fp16;
  std::vector<std::string> prefill;
  for (const std::int64_t rows : graphs.prefill) prefill.push_back(prefill_graph(rows));
  std::vector<std::string> forward = {"micro", "eval", "predict"};
  forward.insert(forward.end(), prefill.begin(), prefill.end());
  // All of them before precision: what they make has types of its own.
  const bool bf16 = plan.precision == Precision::bf16 || plan.precision == Precision::fp8;
  const DType low = fp16 ? DType::f16 : bf16 ? DType::bf16 : DType::f32;
  const auto in_graphs = [&](passes::QuantizeWeights::Options options) {
    options.graphs = forward;
    options.to = low;
    return options;
  };
  if (!trains && plan.observed) p.add<passes::ObserveInputs>(passes::ObserveInputs::Options{in_graphs(*plan.observed)});
  if (!trains && plan.ranged) p.add<passes::ObserveRanges>(passes::ObserveRanges::Options{in_graphs(*plan.ranged)});
  if (!trains && plan.weights) p.add<passes::QuantizeWeights>(in_graphs(*plan.weights));
  if (!trains && plan.int8_inputs) p.add<passes::RoundInputs>(passes::RoundInputs::Options{forward, low});
  if (plan.rounded) p.add<passes::RoundWeights>(in_graphs(*plan.rounded));
  // Before autodiff, so that gradients are made in the precision of what they belong to.
  if (fp16 || bf16) p.add<passes::LowPrecision>(passes::LowPrecision::Options{low, forward});
  // Before autodiff: a gradient belongs to the part of what it is the gradient of.
  if (plan.stages() > 1)
    p.add<passes::Stage>(passes::Stage::Options{.parts = plan.parts(), .cuts = plan.stage_cuts, .graphs = forward});
  if (trains) {
    p.add<passes::Autodiff>(passes::Autodiff::Options{.f32_gradients = graphs.micro_batches > 1,
                                                      .seed = fp16 ? passes::LossScale::kState : ""});
    // Needs the gradients' states.
    p.add<passes::Optimizer>(graphs.optimizer);
    // Rewrites the update.
    if (fp16) p.add<passes::LossScale>(graphs.loss_scale);
    // Extends the update, and is sharded with everything else.
    if (plan.prune) p.add<passes::Prune>(*plan.prune);
  }
  // After the gradients, whose products are meant too.
  if (plan.precision == Precision::tf32) p.add<passes::Tf32>();
  if (!prefill.empty()) {
    p.add<passes::LastRow>(passes::LastRow::Options{.graphs = {prefill.begin() + 1, prefill.end()}});
    // After precision, so that the caches have the type of what they keep.
    p.add<passes::SequenceCache>(
        passes::SequenceCache::Options{.graphs = prefill, .rows = graphs.cache_rows, .int8 = plan.int8_cache});
  }
  // After every pass that adds state.
  p.add<passes::InitialState>();
  if (plan.mesh.ranks() == 1) return;
  // After the gradients, whose sums over ranks follow from how the batch is sharded.
  p.add<passes::Propagate>(passes::Propagate::Options{plan.mesh, annotations(graphs, plan)});
  // Before everything that counts bytes or moves work about, which are a rank's own.
  passes::Places places;
  for (const char* axis : {ir::kHeightAxis, ir::kWidthAxis})
    if (const int ranks = plan.mesh.size_of(axis); ranks > 1)
      places[axis] = at.contains(axis) ? at.at(axis) : ranks - 1;
  p.add<passes::Partition>(
      passes::Partition::Options{.places = std::move(places),
                                 .overlap = plan.overlap,
                                 .own_statistics = plan.own_statistics,
                                 // What replicas compress is then what each of them has, and not terms of it.
                                 .replicas_last = plan.compress.has_value()});
}

}  // namespace

std::vector<passes::Annotation> annotations(const Graphs& graphs, const Plan& plan) {
  std::vector<passes::Annotation> all = plan.sharding;
  for (const std::string& input : graphs.row_inputs)
    all.push_back({input, std::string("batch:") + kRowAxis, 0, {"micro", "eval"}, true});
  return all;
}

std::vector<passes::Places> role_places(const Plan& plan) {
  std::vector<passes::Places> all = {{}};
  for (const char* axis : {ir::kPipelineAxis, ir::kHeightAxis, ir::kWidthAxis}) {
    const int ranks = plan.mesh.size_of(axis);
    if (ranks == 1) continue;
    std::vector<passes::Places> further;
    for (const passes::Places& at : all)
      for (int place = 0; place < ranks; ++place) {
        further.push_back(at);
        further.back()[axis] = place;
      }
    all = std::move(further);
  }
  return all;
}

std::string first_pass_by_place(const Plan& plan) {
  if (plan.is_spatial()) return passes::Partition::kName;
  return plan.stages() > 1 ? "split" : "";
}

passes::Pipeline graph_passes(const Graphs& graphs, const Plan& plan, std::optional<int> place,
                              const passes::Places& at) {
  const bool trains = graphs.purpose == Purpose::train;
  passes::Pipeline p;
  add_common(p, graphs, plan, at);
  // After partition, which is the same for all stages; before everything that counts bytes or moves work about.
  const auto place_of_stage = at.find(ir::kPipelineAxis);
  const int stage = place_of_stage == at.end() ? 0 : place_of_stage->second;
  const std::optional<AsyncStage> asynchronous = async_stage(graphs, plan, stage);
  if (plan.stages() > 1)
    p.add<passes::Split>(passes::Split::Options{
        .stages = plan.stages(), .stage = stage, .parts = plan.parts(), .asynchronous = asynchronous.has_value()});
  // When an update has the gradients of one stage; before anything divides it.
  if (trains && plan.compress) {
    passes::CompressGradients::Options compress = *plan.compress;
    compress.stages_apart = asynchronous.has_value();
    compress.updates_per_step = plan.updates_per_step(graphs.micro_batches);
    p.add<passes::CompressGradients>(std::move(compress));
  }
  if (place) {
    p.add<passes::ServerSide>(*plan.server, *place);
    p.add<passes::CleanUp>();
    return p;
  }
  // Before anything looks at what is saved of what was received.
  if (plan.stages() > 1 && plan.messages)
    p.add<passes::CompressMessages>(passes::CompressMessages::Options{.kind = *plan.messages});
  // Before everything that counts bytes: the update and its state go elsewhere.
  if (plan.server) p.add<passes::WorkerSide>(*plan.server);
  // When products are a rank's own, and before what is saved is chosen: it saves other values.
  if (trains && plan.precision == Precision::fp8) p.add<passes::Fp8>();
  if (trains && plan.recompute) {
    // Values nobody reads would be planned for.
    p.add<passes::CleanUp>();
    // Before fusion: a residual sum that is fused into a norm could not be held without the norm's output.
    p.add<passes::Remat>(passes::Remat::Options{.recompute = *plan.recompute, .partial = role_places(plan).size() > 1});
  }
  // Removes the gradients nobody asked for, which would look like further uses to fusion.
  p.add<passes::CleanUp>();
  p.add<passes::Fuse>(passes::Fuse::Options{
      .saved_exactly = !plan.activations || *plan.activations == passes::CompressActivations::Kind::sharded,
      .sums_in_norms = plan.device != device::Kind::cpu});
  // After fusion, which decides what is saved.
  if (trains && plan.activations)
    p.add<passes::CompressActivations>(passes::CompressActivations::Options{
        .kind = *plan.activations, .axis = ir::kTensorAxis, .partial = plan.stages() > 1});
  // After what decides what is saved for the backward pass: gathered weights are no part of that. After compression,
  // whose sums and updates it shares out.
  if (plan.zero > 0 && plan.mesh.size_of(kRowAxis) > 1)
    p.add<passes::Zero>(
        passes::Zero::Options{.stage = plan.zero, .axis = kRowAxis, .whole_sums = trains && plan.compress.has_value()});
  // When there will be no further collectives.
  if (plan.mesh.ranks() > 1) p.add<passes::Bucket>(passes::Bucket::Options{.bytes = plan.bucket});
  // Last of all that changes what is computed: it moves what the others left.
  if (plan.offload) {
    passes::Offload::Options offload = *plan.offload;
    offload.partial = role_places(plan).size() > 1 || plan.server;
    p.add<passes::Offload>(std::move(offload));
  }
  // After everything that changes what a micro-batch computes, and in which phase.
  if (asynchronous)
    p.add<passes::InFlight>(passes::InFlight::Options{.ahead = asynchronous->ahead,
                                                      .delayed = asynchronous->delayed,
                                                      .slots = asynchronous->slots,
                                                      .versions = asynchronous->versions});
  // Last: it takes apart what the others know as one.
  if (trains && plan.async_tp && plan.mesh.size_of(ir::kTensorAxis) > 1)
    p.add<passes::AsyncTp>(passes::AsyncTp::Options{.axis = ir::kTensorAxis, .partial = plan.stages() > 1});
  if (trains) p.add<passes::Validate>();
  return p;
}

}  // namespace trireme::compiler
