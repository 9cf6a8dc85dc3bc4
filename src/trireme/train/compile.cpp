#include "trireme/train/compile.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/io/shard_writer.h"
#include "trireme/passes/autodiff.h"
#include "trireme/passes/bucket.h"
#include "trireme/passes/cleanup.h"
#include "trireme/passes/compress_activations.h"
#include "trireme/passes/compress_gradients.h"
#include "trireme/passes/fuse.h"
#include "trireme/passes/initial.h"
#include "trireme/passes/last_row.h"
#include "trireme/passes/loss_scale.h"
#include "trireme/passes/offload.h"
#include "trireme/passes/optimizer.h"
#include "trireme/passes/precision.h"
#include "trireme/passes/remat.h"
#include "trireme/passes/sequence_cache.h"
#include "trireme/passes/shard.h"
#include "trireme/passes/tf32.h"
#include "trireme/passes/validate.h"
#include "trireme/passes/zero.h"
#include "trireme/planner/memory_limit.h"
#include "trireme/planner/predict.h"
#include "trireme/program/lower.h"
#include "trireme/train/compression.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/device_choice.h"
#include "trireme/train/lower_options.h"
#include "trireme/train/saved_state.h"

namespace trireme::train {
namespace {

using ir::Builder;

models::Batch inputs(const Builder& b, const models::ModelConfig& c, bool images, const Shape& tokens,
                     bool with_targets) {
  models::Batch batch;
  if (images) {
    batch.images = b.input("images", {DType::f32, {tokens[0], c.image, c.image, c.channels}});
    if (with_targets) batch.labels = b.input("labels", {DType::i32, {tokens[0]}});
  } else {
    batch.tokens = b.input("tokens", {DType::i32, tokens});
    if (with_targets) batch.targets = b.input("targets", {DType::i32, tokens});
  }
  return batch;
}

std::string advance_graph(std::int64_t rows) { return fmt::format("advance{}", rows); }

// How many tokens the programs that continue a sequence take: one at a time, and larger pieces for prompts.
std::vector<std::int64_t> advance_rows(std::int64_t longest) {
  std::vector<std::int64_t> sizes = {1};
  for (const std::int64_t rows : {8, 32, 128, 512})
    if (rows / 2 < longest) sizes.push_back(rows);
  return sizes;
}

struct GraphOptions {
  Purpose purpose = Purpose::train;
  std::int64_t micro_rows = 1;
  int micro_batches = 1;
  std::vector<std::int64_t> advance = {};  // lengths
  std::int64_t cache_rows = 0;
  passes::Offload::Options offload = {};
  ir::Mesh mesh = {};
  std::optional<passes::ServerOptions> server = {};
};

// The same model, once for every program that needs a form of its own.
void build_graphs(ir::Module& module, const Config& config, const models::Model& model, const GraphOptions& options) {
  const Shape batch{options.micro_rows, config.model.context};
  if (options.purpose == Purpose::train) {
    Builder micro(module, "micro");
    micro.rows_per_step = static_cast<double>(config.train.batch);
    micro.accumulate("loss", model.build(micro, inputs(micro, config.model, model.images, batch, true), config.model));
  }
  if (options.purpose != Purpose::generate) {
    Builder eval(module, "eval");
    eval.training = false;
    const ir::Value loss = model.build(eval, inputs(eval, config.model, model.images, batch, true), config.model);
    eval.output("loss", loss);
  }
  const auto predictor = [&](const std::string& graph, std::int64_t tokens) {
    Builder predict(module, graph);
    predict.training = false;
    const ir::Value logits =
        model.build(predict, inputs(predict, config.model, false, {1, tokens}, false), config.model);
    predict.output("logits", ir::apply1("cast", {logits}, {{"to", std::string("f32")}}));
  };
  if (options.purpose == Purpose::train && !model.images) predictor("predict", config.model.context);
  for (const std::int64_t rows : options.advance) predictor(advance_graph(rows), rows);
}

passes::Offload::Options offload_options(const Config& config, device::Kind device) {
  using Policy = passes::Offload::Policy;
  passes::Offload::Options options;
  if (config.memory.offload_tier == "host" && device == device::Kind::cpu)
    refuse("memory.offload_tier = \"host\": the host's memory is what a CPU computes in; the nearest is \"disk\"");
  options.rates = passes::CostRates::of(device);
  if (device != device::Kind::cpu) {
    if (config.memory.offload_tier != "disk") options.tier = program::kHostTier;
    options.update_on_host = config.memory.offload_update == "host";
    // The link is fast: what is smaller is not worth its start.
    options.smallest = std::size_t{512} << 10;
    options.piece = std::size_t{32} << 20;
  }
  const auto moves = [&](std::string_view kind) {
    if (config.memory.offload == "none") return false;
    if (config.memory.offload == "all") return true;
    const std::vector<std::string> kinds = split(config.memory.offload, ',');
    return std::any_of(kinds.begin(), kinds.end(), [&](const std::string& k) { return trim(k) == kind; });
  };
  options.activations = moves("activations");
  options.weights = moves("weights");
  options.optimizer = moves("optimizer");
  const std::string& policy = config.memory.offload_policy;
  options.policy = policy == "conv" ? Policy::conv : policy == "dynamic" ? Policy::dynamic : Policy::all;
  return options;
}

// Data parallelism: every rank has some rows of the batch.
passes::Shard::Options shard_options(const ir::Mesh& mesh) {
  passes::Shard::Options options{.mesh = mesh, .seeds = {}, .graphs = {"micro", "eval"}};
  if (mesh.size_of("dp") > 1)
    for (const char* input : {"tokens", "targets", "images", "labels"}) options.seeds.push_back({input, "dp"});
  return options;
}

// What follows rematerialisation. `decide`: what becomes of offload, if that is not settled.
void add_last_passes(passes::Pipeline& p, const Config& config, const GraphOptions& options,
                     const passes::Decided::Decide& decide = {}) {
  // Removes the gradients nobody asked for, which would look like further uses to fusion.
  p.add<passes::CleanUp>();
  p.add<passes::Fuse>(passes::Fuse::Options{.saved_exactly = config.memory.activations == "full"});
  // After fusion, which decides what is saved.
  if (options.purpose == Purpose::train && config.memory.activations != "full")
    p.add<passes::CompressActivations>(passes::CompressActivations::Options{
        config.memory.activations == "int8" ? passes::CompressActivations::Kind::int8
                                            : passes::CompressActivations::Kind::bf16});
  // After what decides what is saved for the backward pass: gathered weights are no part of that.
  if (config.parallel.zero > 0 && options.mesh.size_of("dp") > 1)
    p.add<passes::Zero>(passes::Zero::Options{.stage = static_cast<int>(config.parallel.zero), .axis = "dp"});
  // After the sums over ranks are there, and what they are read by.
  if (options.purpose == Purpose::train && config.parallel.compress != "none")
    p.add<passes::CompressGradients>(compression(config));
  // When there will be no further collectives.
  if (options.mesh.ranks() > 1) p.add<passes::Bucket>(passes::Bucket::Options{.bytes = config.parallel.bucket.count});
  // Last of all that changes what is computed: it moves what the others left.
  if (config.memory.offload != "none" && options.purpose != Purpose::generate) {
    if (decide)
      p.add<passes::Decided>("offload", decide);
    else
      p.add<passes::Offload>(options.offload);
  }
  if (options.purpose == Purpose::train) p.add<passes::Validate>();
}

using Lower = std::function<program::Program(const ir::Module& module)>;

// The step as it would be after the rest of the passes.
planner::Trial tried(ir::Module module, const passes::Pipeline& rest, const Lower& lower_step) {
  rest.run(module);
  const program::Program step = lower_step(module);
  planner::Trial trial{step.arena_bytes, planner::nominal_seconds(step)};
  for (const program::Instruction& i : step.instructions)
    trial.movable += i.kind == program::Instruction::Kind::store && i.phase == ir::Phase::forward && i.micro == 0;
  return trial;
}

// Decides what memory.limit leaves open, when the passes that ask for it are reached.
class MemoryDecision {
 public:
  MemoryDecision(const Config& config, const GraphOptions& options, device::Kind device, Lower lower_step,
                 std::optional<planner::Choice>& choice, std::optional<std::size_t>& moved_parameters)
      : config_(config),
        options_(options),
        rates_(passes::CostRates::of(device)),
        lower_step_(std::move(lower_step)),
        limit_(config.memory.limit.count),
        choice_(choice),
        moved_parameters_(moved_parameters) {}

  // Whether `offload` has something to decide.
  bool fits_offload() const { return moves_to_fit() || keeps_to_fit(); }

  passes::RematPlan remat(const ir::Module& module) {
    const ir::Graph& micro = module.graph("micro");
    if (config_.memory.remat != "optimal") return planner::plan_remat(micro, config_.memory.remat);
    const auto lowered = [&](const planner::Saving& saving) {
      GraphOptions options = options_;
      if (moves_to_fit()) options.offload.most = saving.moved;
      passes::Pipeline rest;
      rest.add<passes::Remat>(passes::Remat::Options{.plan = saving.remat});
      add_last_passes(rest, config_, options);
      return tried(module, rest, lower_step_);
    };
    if (!choice_ && moves_to_fit()) choice_ = planner::fastest_within_limit(micro, limit_, rates_, lowered);
    if (choice_) return choice_->saving.remat;
    const auto peak = [&](const passes::RematPlan& plan) { return lowered({plan, 0}).peak; };
    return planner::optimal_remat(micro, limit_, rates_, peak).plan;
  }

  passes::Offload::Options offload(const ir::Module& module) {
    passes::Offload::Options options = options_.offload;
    const auto lowered = [&](const planner::Saving& saving) {
      options.most = saving.moved;
      passes::Pipeline rest;
      rest.add<passes::Offload>(options);
      return tried(module, rest, lower_step_);
    };
    if (moves_to_fit()) {
      if (!choice_) choice_ = planner::moved_to_fit(limit_, {}, lowered);
      options.most = choice_->saving.moved;
    }
    if (!keeps_to_fit()) return options;
    if (!moved_parameters_) moved_parameters_ = fewest_parameters(module, options);
    options.most_parameters = *moved_parameters_;
    return options;
  }

 private:
  bool decides() const {
    return limit_ > 0 && options_.purpose == Purpose::train &&
           options_.offload.policy == passes::Offload::Policy::dynamic;
  }
  bool moves_to_fit() const { return decides() && options_.offload.activations; }
  // Weights and optimizer states that there is room for stay.
  bool keeps_to_fit() const { return decides() && (options_.offload.weights || options_.offload.optimizer); }

  // The parameters whose states must leave so that the step fits; all of them where not even that is enough.
  std::size_t fewest_parameters(const ir::Module& module, passes::Offload::Options options) const {
    const auto fits = [&](std::size_t moved) {
      options.most_parameters = moved;
      passes::Pipeline rest;
      rest.add<passes::Offload>(options);
      return tried(module, rest, lower_step_).peak <= limit_;
    };
    auto fewest = static_cast<std::size_t>(std::count_if(module.states.begin(), module.states.end(),
                                                         [](const ir::State& state) { return state.trained; }));
    for (std::size_t least = 0; least < fewest;) {
      const std::size_t middle = least + (fewest - least) / 2;
      if (fits(middle))
        fewest = middle;
      else
        least = middle + 1;
    }
    return fewest;
  }

  const Config& config_;
  GraphOptions options_;
  passes::CostRates rates_;
  Lower lower_step_;
  std::size_t limit_;
  std::optional<planner::Choice>& choice_;
  std::optional<std::size_t>& moved_parameters_;
};

// As far as a worker's programs and a server's are the same.
void add_first_passes(passes::Pipeline& p, const Config& config, const GraphOptions& options) {
  std::vector<std::string> forward = {"micro", "eval", "predict"};
  std::vector<std::string> advance;
  for (const std::int64_t rows : options.advance) advance.push_back(advance_graph(rows));
  forward.insert(forward.end(), advance.begin(), advance.end());
  // Before autodiff, so that gradients are made in the precision of what they belong to.
  const bool fp16 = config.train.precision == "fp16";
  if (fp16 || config.train.precision == "bf16")
    p.add<passes::LowPrecision>(passes::LowPrecision::Options{fp16 ? DType::f16 : DType::bf16, forward});
  if (options.purpose == Purpose::train) {
    p.add<passes::Autodiff>(passes::Autodiff::Options{.f32_gradients = options.micro_batches > 1,
                                                      .seed = fp16 ? passes::LossScale::kState : ""});
    // Needs the gradients' states.
    p.add<passes::Optimizer>(passes::Optimizer::Options{.kind = config.train.optimizer,
                                                        .beta1 = config.train.betas[0],
                                                        .beta2 = config.train.betas[1],
                                                        .eps = config.train.eps,
                                                        .momentum = config.train.momentum,
                                                        .weight_decay = config.train.weight_decay,
                                                        .clip = config.train.clip});
    // Rewrites the update.
    if (fp16)
      p.add<passes::LossScale>(
          passes::LossScale::Options{.start = config.train.loss_scale, .window = config.train.loss_scale_window});
  }
  // After the gradients, whose products are meant too.
  if (config.train.precision == "tf32") p.add<passes::Tf32>();
  if (!advance.empty()) {
    p.add<passes::LastRow>(passes::LastRow::Options{.graphs = {advance.begin() + 1, advance.end()}});
    // After precision, so that the caches have the type of what they keep.
    p.add<passes::SequenceCache>(passes::SequenceCache::Options{.graphs = advance, .rows = options.cache_rows});
  }
  // After every pass that adds state.
  p.add<passes::InitialState>();
  // After the gradients, whose sums over ranks follow from how the batch is cut; before everything that counts bytes or
  // moves work about, which are a rank's own.
  if (options.mesh.ranks() > 1) p.add<passes::Shard>(shard_options(options.mesh));
}

passes::Pipeline pipeline(const Config& config, const GraphOptions& options, MemoryDecision& decision) {
  passes::Pipeline p;
  add_first_passes(p, config, options);
  // Before everything that counts bytes: the update and its state go elsewhere.
  if (options.server) p.add<passes::WorkerSide>(*options.server);
  if (options.purpose == Purpose::train && config.memory.remat != "none") {
    // Values nobody reads would be planned for.
    p.add<passes::CleanUp>();
    // Before fusion: a residual sum that is fused into a norm could not be held without the norm's output.
    p.add<passes::Decided>("remat", [&decision](const ir::Module& module) {
      return std::make_unique<passes::Remat>(passes::Remat::Options{.plan = decision.remat(module)});
    });
  }
  if (decision.fits_offload())
    add_last_passes(p, config, options, [&decision](const ir::Module& module) {
      return std::make_unique<passes::Offload>(decision.offload(module));
    });
  else
    add_last_passes(p, config, options);
  return p;
}

}  // namespace

const program::Program& Compiled::largest() const {
  const program::Program* found = &step;
  for (const program::Program* p : {&init, &derive, &warm_step, &eval, &predict})
    if (p->arena_bytes > found->arena_bytes) found = p;
  for (const Advance& a : advance)
    if (a.program.arena_bytes > found->arena_bytes) found = &a.program;
  return *found;
}

std::uint64_t Compiled::parameters() const {
  std::uint64_t count = 0;
  if (!servers.empty()) {
    for (const Compiled& server : servers)
      for (const ir::State& state : server.module.states)
        if (state.trained) count += static_cast<std::uint64_t>(state.type.elements());
    return count;
  }
  for (const ir::State& state : module.states)
    if (state.trained) count += static_cast<std::uint64_t>(state.global_shape().elements());
  return count;
}

bool offloads_state(const Config& config) {
  const passes::Offload::Options options = offload_options(config, device_of(config));
  return options.weights || options.optimizer;
}

namespace {

// Lowers a graph of the module and checks the program, whose figures join those of `c`.
program::Program lowered(Compiled& c, const Config& config, const CompileOptions& options, const std::string& name,
                         const std::string& body, const std::string& tail = "", int micro_batches = 1) {
  if (!c.module.has_graph(body)) return {};
  program::LowerOptions lowering = lower_options(config, c.module, c.module.mesh, options, c.device);
  lowering.name = name;
  lowering.body = body;
  lowering.tail = tail;
  lowering.micro_batches = micro_batches;
  program::CheckReport report;
  lowering.reports = {options.dump_passes, options.first_program_pass, options.on_pass, &report};
  program::Program p = program::lower(c.module, c.layout, lowering);
  c.checked.instructions += report.instructions;
  c.checked.buffers += report.buffers;
  c.checked.collectives += report.collectives;
  c.checked.messages += report.messages;
  c.checked.conflicts_ordered += report.conflicts_ordered;
  c.arena_bytes = std::max(c.arena_bytes, p.arena_bytes);
  for (std::size_t tier = 1; tier < c.tier_bytes.size(); ++tier)
    c.tier_bytes[tier] = std::max(c.tier_bytes[tier], p.tier_bytes[tier]);
  return p;
}

// What the server at `place` runs beside the workers' `worker`.
Compiled compile_server(const Compiled& worker, const Config& config, const Registry& registry,
                        const GraphOptions& graphs, const CompileOptions& options, int place) {
  Compiled c;
  c.module.registry = &registry.ops;
  build_graphs(c.module, config, registry.models.at(config.model.family), graphs);
  passes::Pipeline p;
  add_first_passes(p, config, graphs);
  p.add<passes::ServerSide>(*graphs.server, place);
  p.add<passes::CleanUp>();
  p.run(c.module);
  for (const passes::ServerKey& key : graphs.server->keys)
    if (key.server == place) c.keys.push_back(key);
  c.mode = worker.mode;
  c.replicas = worker.replicas;
  c.layout = program::lay_out(c.module, std::min(options.staging, whole_staging(c.module, 1)));
  c.init = lowered(c, config, options, "init", "init");
  c.derive = lowered(c, config, options, "derive", "derive");
  c.step = lowered(c, config, options, "update", "update");
  c.exchange = program::match(worker.step, worker.derive, c.module, place, graphs.server->workers);
  return c;
}

}  // namespace

Compiled compile(const Config& config, const Registry& registry, const CompileOptions& given) {
  CompileOptions options = given;
  const models::Model& model = registry.models.at(config.model.family);
  Compiled c;
  c.device = device_of(config);
  const ir::Mesh mesh = options.purpose == Purpose::train ? mesh_of(config) : ir::Mesh{};
  c.replicas = mesh.size_of("dp");
  if (options.purpose == Purpose::train && config.parallel.compress != "none" && c.replicas == 1)
    refuse(
        "parallel.compress = \"{}\" needs gradients that travel, and there is one rank; parallel.mesh = \"dp=2\" is "
        "the least",
        config.parallel.compress);
  c.micro_rows = micro_batch_rows(config);
  c.micro_batches = static_cast<int>(config.train.batch / c.micro_rows);
  c.module.registry = &registry.ops;
  GraphOptions graphs{.purpose = options.purpose, .micro_rows = c.micro_rows, .micro_batches = c.micro_batches};
  if (options.purpose == Purpose::generate) {
    if (model.images) refuse("model.family = \"{}\" does not predict tokens", config.model.family);
    const std::int64_t most = config.model.context;
    c.cache_rows = options.sequence == 0 ? most : std::min(most, options.sequence);
    graphs.advance = advance_rows(c.cache_rows);
    // The last piece of a prompt may be padded beyond the sequence's end.
    graphs.cache_rows = c.cache_rows + graphs.advance.back();
  }
  graphs.mesh = mesh;
  build_graphs(c.module, config, model, graphs);
  if (config.runtime.device == "auto" && !has_kernels(c.module, c.device)) c.device = device::Kind::cpu;
  if (config.train.precision == "tf32" && c.device == device::Kind::cpu)
    refuse(
        "train.precision = \"tf32\" is a GPU's, and this run computes on the CPU; \"f32\" and \"bf16\" are there on "
        "both");
  if (options.purpose == Purpose::train && config.memory.offload_update == "host" && c.device == device::Kind::cpu)
    refuse(
        "memory.offload_update = \"host\" is for states that leave a GPU, and this run computes on the CPU, whose "
        "cores "
        "make the update; the nearest is \"device\"");
  const std::optional<ServerMode> mode =
      options.purpose == Purpose::train ? server_mode(config) : std::optional<ServerMode>{};
  c.mode = mode;
  if (mode) {
    graphs.server = passes::ServerOptions{.keys = passes::share_out(c.module, server_ranks(config)),
                                          .servers = server_ranks(config),
                                          .workers = mesh.ranks(),
                                          .each = mode->each};
  }
  graphs.offload = offload_options(config, c.device);
  const auto staging_of = [&](const ir::Module& module, std::size_t most) {
    return c.device == device::Kind::cpu ? std::min(most, whole_staging(module, module.mesh.ranks())) : 0;
  };
  const Lower lower_step = [&](const ir::Module& module) {
    const bool least = config.memory.limit.count > 0 && options.staging_gives_way;
    const std::size_t staging = least ? std::min(options.staging, io::kStagingAlignment) : options.staging;
    program::LowerOptions lowering = lower_options(config, module, mesh, options, c.device);
    lowering.tail = "update";
    lowering.micro_batches = c.micro_batches;
    return program::lower(module, program::lay_out(module, staging_of(module, staging)), lowering);
  };
  c.choice = options.choice;
  c.moved_parameters = options.moved_parameters;
  MemoryDecision decision(config, graphs, c.device, lower_step, c.choice, c.moved_parameters);
  const passes::Pipeline graph_passes = pipeline(config, graphs, decision);
  graph_passes.run(c.module, {options.dump_passes, options.disabled_passes, options.on_pass});
  options.first_program_pass = graph_passes.names().size() + 1;

  c.layout = program::lay_out(c.module, staging_of(c.module, options.staging));
  if (c.device != device::Kind::cpu)
    c.host_staging = std::min(options.staging, whole_staging(c.module, c.module.mesh.ranks()));
  c.init = lowered(c, config, options, "init", "init");
  c.derive = lowered(c, config, options, "derive", "derive");
  c.step = lowered(c, config, options, "step", "micro", "update", c.micro_batches);
  if (c.module.has_graph(passes::kWarmUpdate)) {
    c.warm_step = lowered(c, config, options, "warm_step", "micro", passes::kWarmUpdate, c.micro_batches);
    c.warm_steps = compression(config).warmup;
  }
  c.eval = lowered(c, config, options, "eval", "eval");
  c.predict = lowered(c, config, options, "predict", "predict");
  for (const std::int64_t rows : graphs.advance)
    c.advance.push_back({rows, lowered(c, config, options, advance_graph(rows), advance_graph(rows))});
  check_server_mode(c, config);
  options.dump_passes.clear();  // the workers' are enough
  for (int s = 0; mode && s < server_ranks(config); ++s)
    c.servers.push_back(compile_server(c, config, registry, graphs, options, s));
  return c;
}

}  // namespace trireme::train
