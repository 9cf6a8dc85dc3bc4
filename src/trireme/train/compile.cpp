#include "trireme/train/compile.h"

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/core/text.h"
#include "trireme/io/shard_writer.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/fp8.h"
#include "trireme/planner/stages.h"
#include "trireme/program/schedule/check_schedule.h"
#include "trireme/train/compression.h"
#include "trireme/train/device_choice.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/graphs.h"
#include "trireme/train/prune.h"
#include "trireme/train/quantization.h"
#include "trireme/train/sharding.h"

namespace trireme::train {
namespace {

compiler::Precision precision_of(const Config& config) {
  switch (config.train.precision.kind()) {
    case Precision::f32: return compiler::Precision::f32;
    case Precision::tf32: return compiler::Precision::tf32;
    case Precision::bf16: return compiler::Precision::bf16;
    case Precision::fp16: return compiler::Precision::fp16;
    case Precision::fp8: break;
  }
  return compiler::Precision::fp8;
}

planner::RematPolicy remat_policy(const Config& config) {
  using Kind = planner::RematPolicy::Kind;
  const Choice<Remat>& remat = config.memory.remat;
  const auto policy = [&](Kind kind, std::int64_t layers = 1) {
    return planner::RematPolicy{.kind = kind, .layers = layers, .name = remat.text()};
  };
  switch (remat.kind()) {
    case Remat::none: break;
    case Remat::every: return policy(Kind::every, static_cast<std::int64_t>(remat.argument()));
    case Remat::sqrt: return policy(Kind::sqrt);
    case Remat::selective: return policy(Kind::selective);
    case Remat::optimal: return policy(Kind::optimal);
    case Remat::full: return policy(Kind::full);
  }
  return policy(Kind::none);
}

// Which kinds of tensors memory.offload names, and by which policy.
planner::OffloadPolicy offload_policy(const Config& config, device::Kind device) {
  using Which = planner::OffloadPolicy::Which;
  planner::OffloadPolicy policy;
  policy.rates = cost::Rates::of(device);
  // The link of a GPU is fast: what is smaller is not worth its start.
  if (device != device::Kind::cpu) policy.smallest = std::size_t{512} << 10;
  policy.activations = config.memory.offload.activations;
  policy.weights = config.memory.offload.weights;
  policy.optimizer = config.memory.offload.optimizer;
  policy.gradients = config.parallel.compress == Compress::none;
  switch (config.memory.offload_policy.kind()) {
    case OffloadPolicy::all: policy.which = Which::all; break;
    case OffloadPolicy::conv: policy.which = Which::conv; break;
    case OffloadPolicy::dynamic: policy.which = Which::dynamic; break;
  }
  return policy;
}

// How tensors are offloaded; which of them is decided later.
passes::Offload::Options offload_options(const Config& config, device::Kind device) {
  passes::Offload::Options options;
  if (device == device::Kind::cpu) return options;
  if (config.memory.offload_tier != OffloadTier::disk) options.tier = program::kHostTier;
  options.update_on_host = config.memory.offload_update == OffloadUpdate::host;
  options.piece = std::size_t{32} << 20;
  return options;
}

// A CPU's cores are busy with one launch; a GPU has room for a second. Models of images gain no time from it there.
bool overlaps_weight_gradients(const Config& config, device::Kind device, bool images) {
  return config.runtime.overlap_wgrad.value_or(device != device::Kind::cpu && !images);
}

void check_device(const Config& config, device::Kind device, Purpose purpose) {
  // Where nothing is offloaded the key has no effect, and is warned of as such.
  if (config.memory.offload_tier == OffloadTier::host && device == device::Kind::cpu && !config.memory.offload.none())
    refuse("memory.offload_tier = \"host\": the host's memory is what a CPU computes in; the nearest is \"disk\"");
  if (config.train.precision == Precision::tf32 && device == device::Kind::cpu)
    refuse(
        "train.precision = \"tf32\" is a GPU's, and this run computes on the CPU; \"f32\" and \"bf16\" are there on "
        "both");
  if (purpose == Purpose::train && config.prune.method != Prune::none &&
      config.memory.offload_update == OffloadUpdate::host && device != device::Kind::cpu)
    refuse(
        "not available in this version: prune.method = \"{}\" with memory.offload_update = \"host\"; the nearest is "
        "memory.offload_update = \"device\"",
        config.prune.method);
  if (purpose == Purpose::train && config.memory.offload_update == OffloadUpdate::host && device == device::Kind::cpu)
    refuse(
        "memory.offload_update = \"host\" is for states offloaded from a GPU, and this run computes on the CPU, whose "
        "cores "
        "make the update; the nearest is \"device\"");
}

// A sequence that grows is one row of tokens: dp has no further rows to share out, h and w no images.
void check_mesh_of_generation(const Config& config, const ir::Mesh& mesh) {
  std::vector<std::string> shared, unused;
  for (const ir::Mesh::Axis& axis : mesh.axes)
    if (axis.size > 1) {
      const bool useful = axis.name == ir::kTensorAxis || axis.name == ir::kPipelineAxis;
      (useful ? shared : unused).push_back(useful ? fmt::format("{}={}", axis.name, axis.size) : axis.name);
    }
  if (unused.empty()) return;
  // Heads are shared out whole.
  const std::int64_t heads = std::max<std::int64_t>(1, config.model.heads);
  if (shared.empty()) shared.push_back(fmt::format("{}={}", ir::kTensorAxis, nearest_divisor(heads, mesh.ranks())));
  refuse("parallel.mesh = \"{}\": one sequence is generated, of which {} {} nothing to shard; the nearest is \"{}\"",
         config.parallel.mesh, fmt::join(unused, " and "), unused.size() == 1 ? "has" : "have", fmt::join(shared, ","));
}

// A matrix of codes stays whole: stages of a pipeline share the layers out, and ranks along tp nothing.
void check_mesh_of_codes(const Config& config, const ir::Mesh& mesh) {
  const std::int64_t tp = mesh.size_of(ir::kTensorAxis);
  if (config.memory.weights == StoredWeights::full || tp == 1) return;
  std::vector<std::string> axes = {fmt::format("{}={}", ir::kPipelineAxis, tp * mesh.size_of(ir::kPipelineAxis))};
  for (const ir::Mesh::Axis& axis : mesh.axes)
    if (axis.name != ir::kTensorAxis && axis.name != ir::kPipelineAxis)
      axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  refuse(
      "parallel.mesh = \"{}\": weights that are stored as codes (memory.weights = \"{}\") are not sharded over tp; the "
      "nearest is parallel.mesh = \"{}\"",
      config.parallel.mesh, config.memory.weights, fmt::join(axes, ","));
}

// How a model is stored outside training is no way to train it.
void check_trainable(const Config& config) {
  const MemoryConfig& memory = config.memory;
  const bool stored = memory.weights != StoredWeights::full;
  if (!stored && memory.kv_cache == KvCache::full) return;
  std::vector<std::string> nearest;
  if (stored) {
    nearest.emplace_back("memory.weights = \"full\"");
    if (config.train.quantize == TrainedCodes::none)
      nearest.push_back(fmt::format("train.quantize = \"{}\"", memory.weights));
  }
  if (memory.linear_inputs != LinearInputs::full) nearest.emplace_back("memory.linear_inputs = \"full\"");
  if (memory.kv_cache != KvCache::full) nearest.emplace_back("memory.kv_cache = \"full\"");
  const std::string why =
      stored ? fmt::format(
                   "memory.weights = \"{}\" is for evaluation and generation, and quantized weights have no "
                   "gradients; a model is trained to be stored so",
                   memory.weights)
             : fmt::format(
                   "memory.kv_cache = \"{}\" is for `trireme generate`, and training keeps no keys and values of "
                   "earlier tokens",
                   memory.kv_cache);
  refuse("{}; the nearest is {}", why, fmt::join(nearest, " and "));
}

// The schedule of parallel.pipeline = "file:PATH": what the plan that is followed has kept of it, or what is there.
// Refuses a file that has changed since the plan was made.
std::optional<program::Schedule> given_schedule(const program::PipelineName& pipeline, const Decisions* decided) {
  const bool kept = decided != nullptr && !decided->schedule.empty();
  if (pipeline.kind != program::PipelineName::Kind::file) {
    if (kept)
      refuse(
          "{} lists a schedule, and its parallel.pipeline is no file; remove decisions.schedule, or set \"file:PATH\"",
          decided->file);
    return {};
  }
  if (!kept) return read_given_schedule(pipeline.path);
  program::Schedule schedule;
  try {
    schedule = program::parse_schedule(fmt::format("{}", fmt::join(decided->schedule, "\n")));
    program::check_schedule(schedule);
  } catch (Error& e) {
    throw e.within(decided->file + ": decisions.schedule");
  }
  std::error_code unknown;
  if (!std::filesystem::exists(pipeline.path, unknown)) return schedule;
  const std::vector<std::string> now = split(program::to_text(read_given_schedule(pipeline.path)), '\n');
  const std::vector<std::string> then = split(program::to_text(schedule), '\n');
  const auto [a, b] = std::mismatch(now.begin(), now.end(), then.begin(), then.end());
  if (a != now.end() || b != then.end())
    refuse(
        "parallel.pipeline = \"file:{}\" has changed since the plan was made: line {} of the schedule is '{}' there, "
        "and "
        "'{}' in {}; give the new schedule a file of its own, or make both the same",
        pipeline.path, a - now.begin() + 1, a == now.end() ? "" : *a, b == then.end() ? "" : *b, decided->file);
  return schedule;
}

// The micro-batch that makes a replica's share so many micro-batches, or the next more; 0: it has too few rows.
std::int64_t micro_batch_for(std::int64_t share, std::int64_t micro_batches) {
  for (std::int64_t rows = share / micro_batches; rows >= 1; --rows)
    if (share % rows == 0) return rows;
  return 0;
}

// Some schedules are for so many stages, or need so many micro-batches.
void check_schedule_fits(const Config& config, const compiler::Graphs& graphs, const compiler::Plan& plan) {
  if (plan.stages() == 1) return;
  const std::int64_t replicas = plan.mesh.size_of(ir::kDataAxis);
  const std::int64_t share = config.train.batch / replicas;
  const std::int64_t stages = plan.stages(), has = graphs.micro_batches;
  const auto with_rows = [&](std::int64_t wanted) {
    const std::int64_t rows = micro_batch_for(share, wanted);
    return rows > 0 ? fmt::format("train.micro_batch = {}", rows)
                    : fmt::format("train.batch = {} and train.micro_batch = 1", wanted * replicas);
  };
  const std::string given = fmt::format("parallel.pipeline = \"{}\"", config.parallel.pipeline);
  if (plan.pipeline.kind == program::PipelineName::Kind::pipedream_2bw && has < stages)
    refuse("{} needs at least as many micro-batches as stages, and has {} of {}; the nearest is {}", given, has, stages,
           with_rows(stages));
  if (!plan.schedule_given) return;
  const program::Schedule& schedule = *plan.schedule_given;
  if (schedule.stage_count() != stages) {
    ir::Mesh mesh = plan.mesh;
    for (ir::Mesh::Axis& axis : mesh.axes)
      if (axis.name == ir::kPipelineAxis) axis.size = schedule.stage_count();
    refuse("{} has {} stage{}, and parallel.mesh = \"{}\" has {}; the nearest is parallel.mesh = \"{}\"", given,
           schedule.stage_count(), schedule.stage_count() == 1 ? "" : "s", plan.mesh.str(), stages, mesh.str());
  }
  if (schedule.micro_batches == has) return;
  // The batch with as many equal micro-batches that is nearest to the one there is.
  const std::int64_t rows =
      std::max<std::int64_t>(1, (2 * share + schedule.micro_batches) / (2 * schedule.micro_batches));
  refuse("{} has {} micro-batch{}, and this run has {}; the nearest is {}", given, schedule.micro_batches,
         schedule.micro_batches == 1 ? "" : "es", has,
         share % schedule.micro_batches == 0 ? with_rows(schedule.micro_batches)
                                             : fmt::format("train.batch = {} and train.micro_batch = {}",
                                                           rows * schedule.micro_batches * replicas, rows));
}

// Cuts that a plan names, in the words of its file: with those that a plan would have been made with.
void check_cuts(const Decisions& decided, const compiler::Graphs& graphs, const compiler::Plan& plan) {
  std::string why;
  try {
    planner::check_stage_cuts(graphs, plan);
    return;
  } catch (const Error& e) {
    why = e.message();
  }
  compiler::Plan balanced = plan;
  balanced.stage_cuts.clear();
  refuse("{}: decisions.stage_cuts: {}; the nearest is stage_cuts = [\"{}\"]", decided.file, why,
         fmt::join(planner::stage_cuts(graphs, balanced), "\", \""));
}

// Where the plan that is followed cuts the pipeline.
void follow_cuts(const Decisions& decided, const compiler::Graphs& graphs, compiler::Plan& plan) {
  if (plan.stages() == 1) {
    if (decided.stage_cuts && !decided.stage_cuts->empty())
      refuse("{} lists where a pipeline is cut, and its parallel.mesh has no pp; remove decisions.stage_cuts",
             decided.file);
    return;
  }
  if (!decided.stage_cuts && decided.required)
    refuse(
        "{} does not list where its pipeline is cut; add decisions.stage_cuts, the first values of the stages behind "
        "the "
        "first, or make the plan anew with `trireme memory CONFIG --plan-out FILE`",
        decided.file);
  const bool asked = !plan.stage_layers.empty();
  if (!decided.stage_cuts || asked) plan.stage_cuts = planner::stage_cuts(graphs, plan);
  if (asked && decided.stage_cuts && plan.stage_cuts != *decided.stage_cuts)
    refuse(
        "{} has parallel.stages = [{}], which cuts at {}, and decisions.stage_cuts = {}; set stages = [] to cut where "
        "the "
        "decisions say",
        decided.file, fmt::join(plan.stage_layers, ", "), fmt::join(plan.stage_cuts, ", "),
        fmt::join(*decided.stage_cuts, ", "));
  if (decided.stage_cuts) plan.stage_cuts = *decided.stage_cuts;
  check_cuts(decided, graphs, plan);
}

void follow_held(const Decisions& decided, const Config& config, const compiler::Graphs& graphs, compiler::Plan& plan) {
  if (decided.max_held.empty()) return;
  const bool has_limits = plan.stages() > 1 && plan.pipeline.kind == program::PipelineName::Kind::zero_bubble_auto;
  if (!has_limits)
    refuse(
        "{} has decisions.held, which stages of parallel.pipeline = \"zero-bubble:auto\" go by, and there {}; remove "
        "it",
        decided.file,
        plan.stages() > 1 ? fmt::format("parallel.pipeline is \"{}\"", config.parallel.pipeline.text())
                          : std::string("is no pipeline"));
  if (const std::size_t given = decided.max_held.size(); given > 1 && given != static_cast<std::size_t>(plan.stages()))
    refuse("{} has decisions.held for {} stages, and parallel.mesh has {}; give one number for all, or one for each",
           decided.file, given, plan.stages());
  for (const int held : decided.max_held)
    if (held > graphs.micro_batches)
      refuse("{} has decisions.held = {}, and a step has {} micro-batches, of which a stage can hold no more than {}",
             decided.file, held, graphs.micro_batches, graphs.micro_batches);
  plan.max_held = decided.max_held;
}

// Takes over what a plan that was read decides. Refuses decisions that its own keys contradict.
void follow(const Decisions& decided, const Config& config, const compiler::Graphs& graphs, compiler::Plan& plan) {
  if (!compiler::is_digest_of(decided.model, graphs))
    refuse(
        "{} was made for another model, or by an earlier version (its digest is {}, this one's {}); make one with "
        "`trireme memory CONFIG --plan-out FILE`",
        decided.file, decided.model, compiler::digest_of(graphs));
  if (decided.device != plan.device)
    refuse("{} was made for {}, and this run computes on {}", decided.file, device::name_of(decided.device),
           device::name_of(plan.device));
  if (config.memory.remat == Remat::none && decided.recompute)
    refuse("{} lists values to recompute, and has memory.remat = \"none\"; remove decisions.recompute, or set remat",
           decided.file);
  if (config.memory.remat != Remat::none && !decided.recompute)
    refuse(
        "{} has memory.remat = \"{}\", and does not list what is recomputed; add decisions.recompute, or set \"none\"",
        decided.file, config.memory.remat);
  if (!plan.offload && !(decided.offload_activations.empty() && decided.offload_states.empty() &&
                         decided.offload_reloads.value_or(std::vector<std::string>{}).empty()))
    refuse("{} lists what is offloaded, and has memory.offload = \"none\"; remove decisions.offload_…, or set offload",
           decided.file);
  follow_cuts(decided, graphs, plan);
  plan.recompute = decided.recompute;
  follow_held(decided, config, graphs, plan);
  if (plan.offload) {
    plan.offload->activations = decided.offload_activations;
    plan.offload->states = decided.offload_states;
    if (decided.offload_reloads)
      plan.offload->reloads = *decided.offload_reloads;
    else
      planner::decide_reloads(graphs, plan);
  }
  // Whole blocks, of which one is the least.
  constexpr std::size_t kUnit = io::kStagingAlignment;
  plan.staging = std::min(plan.staging, std::max(kUnit, decided.staging / kUnit * kUnit));
}

// Refuses a reload that is before nothing which reads its state, in any of the graphs. A name by which no state is
// offloaded is the pass's to refuse.
void check_reloads(const Decisions& decided, const compiler::Graphs& graphs, const compiler::Plan& plan) {
  const std::vector<std::string> possible = planner::possible_reloads(graphs, plan);
  const std::set<std::string> known(possible.begin(), possible.end());
  for (const std::string& reload : *decided.offload_reloads) {
    const auto of_state = [&](const std::string& state) { return reload.starts_with(passes::reload_name(state, "")); };
    const auto state = std::find_if(plan.offload->states.begin(), plan.offload->states.end(), of_state);
    if (known.contains(reload) || state == plan.offload->states.end()) continue;
    refuse("decisions.offload_reloads has '{}', and no op that makes a value of that name reads '{}'{}", reload, *state,
           nearest_text(reload, possible));
  }
}

}  // namespace

bool offloads_state(const Config& config) { return config.memory.offload.state(); }

Planned make_plan(const Config& config, const Registry& registry, const CompileOptions& options) {
  const bool trains = options.purpose == Purpose::train;
  // Who searches or reads a plan has set the keys by it.
  if (trains && config.parallel.plan != Planning::none)
    refuse(
        "parallel.plan = \"{}\" is not carried out here, where it must be \"none\", with the keys of a plan; `trireme "
        "train`, `memory`, `inspect` and `simulate` follow one with --plan FILE",
        config.parallel.plan.text());
  Planned planned;
  compiler::Plan& plan = planned.plan;
  DeviceChoice device = choose_device(config, options.local_ranks);
  plan.device = device.device;
  if (trains || !config.parallel.any_mesh()) plan.mesh = mesh_of(config);
  if (options.purpose == Purpose::generate) check_mesh_of_generation(config, plan.mesh);
  if (trains && config.parallel.compress != Compress::none && plan.mesh.ranks() == 1)
    refuse(
        "parallel.compress = \"{}\" needs gradients to communicate, and there is one rank; parallel.mesh = \"dp=2\" is "
        "the least",
        config.parallel.compress);
  if (trains && config.memory.activations == Activations::sharded && plan.mesh.size_of(ir::kTensorAxis) == 1)
    refuse(
        "memory.activations = \"sharded\" saves a part of each activation on every rank along tp, and parallel.mesh = "
        "\"{}\" has no tp; the nearest is \"full\"",
        config.parallel.mesh);
  if (trains)
    check_trainable(config);
  else
    check_mesh_of_codes(config, plan.mesh);
  planned.graphs = build_graphs(config, registry, options);
  if (options.decided && !options.decided->required &&
      !compiler::is_digest_of(options.decided->model, planned.graphs)) {
    // Nothing of it is followed: its schedule, by which the graphs were built, is of no more use than the rest.
    CompileOptions anew = options;
    anew.decided.reset();
    planned = make_plan(config, registry, anew);
    planned.stale = true;
    return planned;
  }
  plan.precision = precision_of(config);
  if (trains && plan.precision == compiler::Precision::fp8 && !passes::Fp8::is_for(planned.graphs.module))
    refuse(
        "train.precision = \"fp8\" is for linear layers, and model.family = \"{}\" has none but the one that makes its "
        "logits, which stays in bf16; the nearest is train.precision = \"bf16\"",
        config.model.family);
  if (const std::string missing = missing_kernel(config, planned.graphs, plan); !missing.empty()) {
    if (config.runtime.device != Device::automatic)
      refuse("runtime.device = \"{}\": {}", config.runtime.device, missing);
    device.why = missing;
    plan.device = device::Kind::cpu;
  }
  if (!device.why.empty()) planned.device_note = fmt::format("computes on the CPU: {}", device.why);
  check_device(config, plan.device, options.purpose);

  plan.threads = options.threads;
  plan.transport = options.transport;
  plan.sharding = sharding_of(config, plan.mesh, trains);
  plan.zero = static_cast<int>(config.parallel.zero);
  plan.own_statistics = config.train.batch_stats == BatchStats::local;
  plan.async_tp = config.parallel.async_tp;
  // Forward passes alone go from stage to stage, in whichever order the model was trained.
  if (trains) plan.pipeline = program::parse_pipeline(config.parallel.pipeline.text());
  const Decisions* decided = options.decided ? &*options.decided : nullptr;
  if (plan.stages() > 1) plan.schedule_given = given_schedule(plan.pipeline, decided);
  if (plan.schedule_given) plan.pipeline.chunks = plan.schedule_given->chunks;
  if (trains) check_schedule_fits(config, planned.graphs, plan);
  if (trains || std::ssize(config.parallel.stages) == plan.stages()) plan.stage_layers = config.parallel.stages;
  if (config.parallel.stage_dtype == StageDtype::bf16) plan.messages = passes::CompressMessages::Kind::bf16;
  if (config.parallel.stage_dtype == StageDtype::int8) plan.messages = passes::CompressMessages::Kind::int8;
  if (trains && config.parallel.compress != Compress::none) plan.compress = compression(config);
  if (config.memory.activations == Activations::bf16) plan.activations = passes::CompressActivations::Kind::bf16;
  if (config.memory.activations == Activations::sharded) plan.activations = passes::CompressActivations::Kind::sharded;
  if (config.memory.activations == Activations::int8) plan.activations = passes::CompressActivations::Kind::int8;
  if (trains) plan_extra_ranks(config, plan);
  if (trains && config.prune.method != Prune::none) plan.prune = pruning(config, planned.graphs);
  if (trains)
    plan.rounded = trained_weights(config);
  else if (options.observe)
    plan.observed = options.observe;
  else if (options.observe_ranges)
    plan.ranged = options.observe_ranges;
  else
    plan.weights = stored_weights(config);
  plan.int8_inputs = plan.weights && config.memory.linear_inputs == LinearInputs::int8;
  plan.int8_cache = config.memory.kv_cache == KvCache::int8;
  plan.bucket = config.parallel.bucket.count;
  plan.overlap = config.parallel.overlap;
  plan.allreduce = algorithm_of(config);
  plan.overlap_wgrad =
      trains && overlaps_weight_gradients(config, plan.device, registry.models.at(config.model.family).images);
  plan.staging = options.staging;

  planner::MemoryPolicy policy{.remat = remat_policy(config),
                               .limit = config.memory.limit.count,
                               .staging_gives_way = options.staging_gives_way};
  if (!config.memory.offload.none() && options.purpose != Purpose::generate) {
    policy.offload = offload_policy(config, plan.device);
    plan.offload = offload_options(config, plan.device);
  }
  if (decided != nullptr) {
    follow(*decided, config, planned.graphs, plan);
    if (plan.offload && !decided->offload_reloads.value_or(std::vector<std::string>{}).empty()) {
      // A step alone has none of the graphs that evaluate and predict, whose readers a plan names too.
      CompileOptions whole = options;
      whole.step_alone = false;
      try {
        check_reloads(*decided, options.step_alone ? build_graphs(config, registry, whole) : planned.graphs, plan);
      } catch (Error& e) {
        throw e.within(decided->file);
      }
    }
  } else
    planned.choice = planner::decide(planned.graphs, plan, policy);
  return planned;
}

Compiled compile(const Planned& planned, const Config& config, const CompileOptions& options) {
  try {
    Compiled compiled = compiler::compile(planned.graphs, planned.plan,
                                          {options.dump_passes, options.disabled_passes, options.on_pass});
    check_pace(compiled, config);
    return compiled;
  } catch (Error& e) {
    // What is wrong with names and shardings is wrong with the plan that has them.
    if (!options.decided || planned.stale || e.kind() != Error::Kind::request) throw;
    throw e.within(options.decided->file);
  }
}

Compiled compile(const Config& config, const Registry& registry, const CompileOptions& options) {
  return compile(make_plan(config, registry, options), config, options);
}

}  // namespace trireme::train
