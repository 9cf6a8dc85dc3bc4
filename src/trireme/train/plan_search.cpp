#include "trireme/train/plan_search.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/chain.h"
#include "trireme/passes/stage.h"
#include "trireme/planner/integer_program.h"
#include "trireme/planner/op_strategies.h"
#include "trireme/train/extra_ranks.h"
#include "trireme/train/graphs.h"
#include "trireme/train/plan_file.h"

namespace trireme::train {
namespace {

using planner::Candidate;
using planner::LayerKey;
using planner::RematPolicy;

RematPolicy::Kind remat_kind(const Config& config) {
  switch (config.memory.remat.kind()) {
    case Remat::none: break;
    case Remat::every: return RematPolicy::Kind::every;
    case Remat::sqrt: return RematPolicy::Kind::sqrt;
    case Remat::selective: return RematPolicy::Kind::selective;
    case Remat::optimal: return RematPolicy::Kind::optimal;
    case Remat::full: return RematPolicy::Kind::full;
  }
  return RematPolicy::Kind::none;
}

Candidate candidate_of(const ir::Mesh& mesh) {
  Candidate c{.pp = mesh.size_of(ir::kPipelineAxis), .dp = mesh.size_of(ir::kDataAxis)};
  c.layer.tp = mesh.size_of(ir::kTensorAxis);
  c.layer.h = mesh.size_of(ir::kHeightAxis);
  c.layer.w = mesh.size_of(ir::kWidthAxis);
  return c;
}

// The ops and types of each layer, so that two can be compared.
std::map<std::string, std::string> signatures(const ir::Graph& graph) {
  std::map<std::string, std::string> all;
  for (const ir::Node& node : graph.nodes) {
    if (node.outputs.empty()) continue;
    std::string& own = all[passes::layer_of(graph.value(node.outputs.front()).name)];
    own += node.op->name;
    for (const TensorType& type : graph.input_types(node)) own += type.present ? type.str() : "-";
    own += ";";
  }
  return all;
}

// The layers that a pipeline may be cut between, in order.
std::vector<std::string> layer_names(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const passes::Segment& segment : passes::find_stage_chain(graph).segments)
    if (!segment.layer.empty() && std::isdigit(static_cast<unsigned char>(segment.layer.back())) != 0 &&
        (names.empty() || names.back() != segment.layer))
      names.push_back(segment.layer);
  return names;
}

}  // namespace

int usual_ranks(const cluster::Cluster& cluster) {
  return static_cast<int>(
      std::max<std::int64_t>(1, cluster.device.kind == "cpu" ? cluster.node.cores : cluster.node.devices));
}

std::vector<std::string> settings_of(const Candidate& c) {
  std::vector<std::string> settings = {
      fmt::format("parallel.mesh={}", planner::mesh_text(c)), fmt::format("parallel.zero={}", c.zero),
      fmt::format("parallel.sequence={}", c.layer.sequence), fmt::format("train.micro_batch={}", c.layer.micro_batch)};
  if (c.layer.remat != RematPolicy::Kind::every)
    settings.push_back(fmt::format("memory.remat={}", planner::remat_text(c.layer.remat)));
  if (c.pp > 1) settings.push_back("parallel.pipeline=" + planner::pipeline_text(c.pipeline));
  if (c.offload.any()) settings.push_back("memory.offload=" + planner::offload_text(c.offload));
  if (!c.layer.precision.empty()) settings.push_back("train.precision=" + c.layer.precision);
  if (c.compress != planner::Compression::configured)
    settings.push_back(fmt::format("parallel.compress={}", compression_text(c.compress)));
  settings.push_back(fmt::format("parallel.stages=[{}]", fmt::join(c.stages, ",")));
  return settings;
}

PlanSearch::PlanSearch(Config config, const Registry& registry, PlanRequest request)
    : config_(std::move(config)), registry_(registry), request_(std::move(request)) {
  const Stopwatch preparation;
  if (const std::string setting = extra_ranks_setting(config_); !setting.empty())
    refuse("{}: plans are searched for the ranks of a mesh alone; the nearest is \"none\"", setting);
  for (const cluster::Ranks& r : request_.cluster.ranks)
    if (r.last >= request_.ranks)
      refuse("cluster {}: ranks {} to {} differ, and the plan is for {}; --ranks {} is the least",
             request_.cluster.name, r.first, r.last, request_.ranks, r.last + 1);
  config_.parallel.plan = Planning::none;
  emulate_link(request_.cluster, config_.runtime.link);
  config_.runtime.link.clear();
  resolve_shape(config_, registry_, {.on_phase = request_.on_phase, .log = request_.log});
  find_space();
  check_folds();
  find_own();
  problem_.cluster = &request_.cluster;
  // So many tokens fill a device: products of more take longer in proportion.
  constexpr std::int64_t kTokens = 8192;
  const bool images = registry_.models.at(config_.model.family).images;
  const std::int64_t rows = kTokens / std::max<std::int64_t>(1, images ? 64 : config_.model.context);
  for (problem_.proportional_from = 2; problem_.proportional_from < rows;) problem_.proportional_from *= 2;
  constexpr std::int64_t kFewLayers = 16;
  problem_.finer_stages = problem_.space.layers <= kFewLayers;
  problem_.overlap = config_.parallel.overlap && request_.cluster.current().overlap_groups;
  problem_.profile = [this](const LayerKey& key) { return profile(key); };
  problem_.score = [this](const Candidate& candidate) { return score(candidate); };
  prepared_ = preparation.spent();
}

bool PlanSearch::is_fixed(const std::string& key) const {
  return std::find(request_.fixed.begin(), request_.fixed.end(), key) != request_.fixed.end();
}

void PlanSearch::find_space() {
  const cluster::Cluster& c = request_.cluster;
  planner::Space& space = problem_.space;
  space.ranks = request_.ranks;
  space.fewer_ranks = request_.fewer_ranks || request_.search.objective == planner::Objective::cost;
  space.batch = config_.train.batch;
  space.max_tp = static_cast<int>(c.node.devices);
  if (is_fixed("parallel.mesh")) {
    const ir::Mesh mesh = mesh_of(config_, request_.ranks);
    const Candidate fixed = candidate_of(mesh);
    space.fixed_meshes = {fixed};
    space.ranks = fixed.ranks();
  }
  if (is_fixed("parallel.zero")) space.zero = {static_cast<int>(config_.parallel.zero)};
  space.pipelines = {program::parse_pipeline("1f1b"), program::parse_pipeline("interleaved:2"),
                     program::parse_pipeline("interleaved:4"), program::parse_pipeline("zero-bubble")};
  if (is_fixed("parallel.pipeline")) space.pipelines = {program::parse_pipeline(config_.parallel.pipeline.text())};
  if (is_fixed("train.micro_batch") && config_.train.micro_batch > 0) space.micro_batches = {config_.train.micro_batch};
  space.remat = {RematPolicy::Kind::none, RematPolicy::Kind::selective, RematPolicy::Kind::full};
  if (is_fixed("memory.remat")) space.remat = {remat_kind(config_)};
  if (is_fixed("parallel.sequence")) space.sequence = {config_.parallel.sequence};
  if (registry_.models.at(config_.model.family).images) space.sequence = {false};
  // The ops' strategies are chosen too, apart from the preset of the family or a person's annotations, which stay.
  if (planner::has_integer_solver()) space.shardings = 2;
  // What the configuration offloads goes into every plan; else what the memory needs.
  const cluster::Tier& tier = c.device.kind == "cpu" ? c.disk : c.host;
  if (!is_fixed("memory.offload") && config_.memory.offload.none() && tier.bandwidth > 0)
    space.offload = {{}, {.optimizer = true}, {.activations = true}, {.optimizer = true, .activations = true}};
  if (request_.precision && !is_fixed("train.precision"))
    for (const char* dtype : {"f32", "tf32", "bf16", "fp16"})
      if (dtype != config_.train.precision.text() &&
          c.device.flops.contains(dtype == std::string("fp16") ? "f16" : dtype))
        space.precisions.emplace_back(dtype);
  if (request_.compress && !is_fixed("parallel.compress") && config_.parallel.compress == Compress::none)
    space.compressions = {planner::Compression::configured, planner::Compression::bf16, planner::Compression::int8};
  if (is_fixed("parallel.stages") && !config_.parallel.stages.empty()) space.stages = {config_.parallel.stages};
  problem_.limit = c.memory_of(0, request_.ranks);
  for (const cluster::Ranks& r : c.ranks)
    problem_.limit = std::min(problem_.limit, c.memory_of(r.first, request_.ranks));
  if (config_.memory.limit.count > 0)
    problem_.limit = std::min(problem_.limit, static_cast<double>(config_.memory.limit.count));
}

// A model of few layers stands for one of many, where all but the outermost are the same.
void PlanSearch::check_folds() {
  constexpr std::int64_t kShort = 3;
  const auto forward = [&](std::int64_t layers) {
    Config config = config_;
    config.model.layers = layers;
    config.parallel = {};
    config.parallel.mesh = "dp=1";
    config.train.batch = config.train.micro_batch = 1;
    return build_graphs(config, registry_, {.step_alone = true}).module;
  };
  const ir::Module whole = forward(config_.model.layers);
  const std::vector<std::string> names = layer_names(whole.graph("micro"));
  problem_.space.layers = std::max<std::int64_t>(1, std::ssize(names));
  for (const ir::Node& node : whole.graph("micro").nodes)
    problem_.space.spatial = problem_.space.spatial || node.op->name.starts_with("conv");
  if (std::ssize(names) != config_.model.layers || std::ssize(names) <= kShort) return;
  try {
    const ir::Module less = forward(kShort);
    const std::vector<std::string> few = layer_names(less.graph("micro"));
    if (std::ssize(few) != kShort) return;
    const auto of_whole = signatures(whole.graph("micro"));
    const auto of_few = signatures(less.graph("micro"));
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::size_t as = i == 0 ? 0 : i + 1 == names.size() ? few.size() - 1 : 1;
      if (of_whole.at(names[i]) != of_few.at(few[as])) return;
    }
    folded_ = kShort;
  } catch (const Error&) {
    return;  // a model of this family has not so few
  }
}

void PlanSearch::find_own() {
  if (config_.parallel.any_mesh() || !problem_.space.fixed_meshes.empty()) return;
  const ir::Mesh mesh = mesh_of(config_, request_.ranks);
  if (mesh.ranks() != request_.ranks) return;
  Candidate own = candidate_of(mesh);
  own.layer.sequence = config_.parallel.sequence;
  own.layer.remat = remat_kind(config_);
  if (own.layer.remat == RematPolicy::Kind::optimal || own.layer.remat == RematPolicy::Kind::every) return;
  own.layer.micro_batch = micro_batch_rows(config_) / own.dp;
  own.zero = static_cast<int>(config_.parallel.zero);
  own.pipeline = program::parse_pipeline(config_.parallel.pipeline.text());
  own.stages = config_.parallel.stages;
  problem_.own = own;
}

Config PlanSearch::under(const Candidate& candidate) const {
  Config config = config_;
  for (const std::string& setting : settings_of(candidate)) apply_setting(config, setting, registry_.models);
  if (candidate.layer.sharding > 0)
    for (const passes::Annotation& a : shardings(candidate.layer.tp)) config.parallel.sharding[a.pattern] = a.sharding;
  return config;
}

OnCluster PlanSearch::compiled(const Candidate& candidate) const {
  return compile_on(under(candidate), registry_, request_.cluster, {.resolved = true, .log = request_.log});
}

Config PlanSearch::layer_config(const LayerKey& key) const {
  Config config = config_;
  if (folded_ > 0) config.model.layers = folded_;
  config.parallel.mesh = planner::mesh_text({.layer = key});
  config.parallel.sequence = key.sequence;
  config.parallel.zero = 0;
  config.parallel.stages.clear();
  config.parallel.compress = Compress::none;
  config.train.micro_batch = key.micro_batch;
  config.train.batch = 2 * key.micro_batch;  // gradients are summed over micro-batches
  config.memory.remat = Remat::none;
  config.memory.offload = {};
  config.memory.limit = {};
  config.runtime.device = Device::cpu;
  if (!key.precision.empty()) apply_setting(config, "train.precision=" + key.precision, registry_.models);
  return config;
}

const std::vector<passes::Annotation>& PlanSearch::shardings(int tp) const {
  std::unique_lock lock(mutex_);
  Chosen& chosen = shardings_[tp];
  lock.unlock();
  std::call_once(chosen.once, [&] {
    LayerKey key;
    key.tp = tp;
    const Config config = layer_config(key);
    std::vector<passes::Annotation> given;
    for (const auto& [pattern, sharding] : config.parallel.sharding) given.push_back({pattern, sharding});
    // Not the preset: parameters begin unsharded.
    Planned planned = make_plan(config, registry_, {.threads = 1, .step_alone = true});
    planned.plan.sharding.clear();
    // Whole parameters on every rank would be data parallelism by another name.
    constexpr double kUneven = 1.2;
    const double share = given.empty() ? kUneven / tp : 0;
    chosen.annotations =
        planner::choose_shardings(planned.graphs, planned.plan, request_.cluster,
                                  {.axis = ir::kTensorAxis, .state_share = share, .annotations = std::move(given)})
            .annotations;
  });
  return chosen.annotations;
}

std::optional<planner::Profile> PlanSearch::profile(const LayerKey& key) const {
  Config config = layer_config(key);
  RematPolicy remat{.kind = key.remat, .layers = 1, .name = planner::remat_text(key.remat)};
  if (key.remat == RematPolicy::Kind::every) remat.layers = static_cast<std::int64_t>(config_.memory.remat.argument());
  // It needs a budget to choose by; what it comes to is between these.
  if (key.remat == RematPolicy::Kind::optimal) remat.kind = RematPolicy::Kind::selective;
  try {
    if (key.sharding > 0) {
      if (shardings(key.tp).empty()) return std::nullopt;
      for (const passes::Annotation& a : shardings(key.tp)) config.parallel.sharding[a.pattern] = a.sharding;
    }
    check(config, registry_.models);
    const Planned planned = make_plan(config, registry_, {.threads = 1, .step_alone = true});
    return planner::profile_of(planned.graphs, planned.plan, remat, request_.cluster, problem_.space.layers);
  } catch (const Error& e) {
    const std::lock_guard lock(mutex_);
    unprofiled_ = e.message();
    return std::nullopt;  // the model cannot be sharded so
  }
}

// Compiles the best in full. It may come out larger than the shorter models say, or slower than the next.
void PlanSearch::confirm(planner::SearchResult& result, std::optional<Winner>& winner) const {
  const auto value = [&](const planner::Scored& s) { return s.value(request_.search.objective); };
  while (!result.best.empty()) {
    planner::Scored& best = result.best.front();
    const bool known = winner && winner->candidate == best.candidate;
    if (known) return;
    if (request_.search.on_progress) request_.search.on_progress("compiling the winner", 0, 1, &best);
    winner = Winner{best.candidate, compiled(best.candidate), {}};
    winner->simulation = simulator::simulate(winner->on.compiled, winner->on.cluster);
    planner::Scored full = simulated(winner->on, winner->simulation);
    full.candidate = best.candidate;
    full.estimated = best.estimated;
    best = full;
    if (!best.feasible()) {
      result.others.push_back(best);
      result.best.erase(result.best.begin());
      winner.reset();
      continue;
    }
    std::stable_sort(result.best.begin(), result.best.end(),
                     [&](const planner::Scored& a, const planner::Scored& b) { return value(a) < value(b); });
  }
}

planner::SearchResult PlanSearch::run(std::optional<Winner>* winner) const {
  const Stopwatch search;
  planner::SearchResult result = planner::search(problem_, request_.search);
  result.searched = prepared_ + search.spent();
  std::optional<Winner> own;
  const Stopwatch compilation;
  const bool whole = winner != nullptr;
  if (request_.confirm && !result.best.empty() && (whole || !result.best.front().exact))
    confirm(result, whole ? *winner : own);
  result.confirmed = compilation.spent();
  if (result.best.empty() && !result.stopped) refuse_all(result);
  return result;
}

void PlanSearch::refuse_all(const planner::SearchResult& result) const {
  const std::string cluster = request_.cluster.name;
  if (result.candidates == 0)
    refuse("no mesh of {} ranks divides train.batch = {} or the {} layers of the model; the nearest batch is {}",
           problem_.space.ranks, config_.train.batch, problem_.space.layers,
           (config_.train.batch + problem_.space.ranks - 1) / problem_.space.ranks * problem_.space.ranks);
  const planner::Scored* least = nullptr;
  for (const planner::Scored& s : result.others)
    if (s.refused.empty() && (least == nullptr || s.bytes < least->bytes)) least = &s;
  const auto room = format_bytes(static_cast<std::uint64_t>(problem_.limit));
  if (least != nullptr)
    refuse("no plan fits {} a rank on {} ranks of {}; the nearest is {}, which needs {}", room, problem_.space.ranks,
           cluster, planner::describe(least->candidate), format_bytes(least->bytes));
  if (result.smallest && result.smallest_bytes > problem_.limit)
    refuse(
        "no plan fits {} a rank on {} ranks of {}; the nearest is {}, which needs at least {}; {} ranks would have "
        "room for its states",
        room, problem_.space.ranks, cluster, planner::describe(*result.smallest),
        format_bytes(static_cast<std::uint64_t>(result.smallest_bytes)),
        static_cast<std::int64_t>(static_cast<double>(problem_.space.ranks) * result.smallest_bytes / problem_.limit) +
            1);
  if (!result.others.empty())
    refuse("no plan could be compiled for {} ranks of {}: {}", problem_.space.ranks, cluster,
           result.others.front().refused);
  refuse("no plan could be made for {} ranks of {}: {}", problem_.space.ranks, cluster, unprofiled_);
}

std::string plan_file_text(const OnCluster& on, const std::string& launch) {
  Planned planned = on.planned;
  // Made by a build that lowers for a CPU: the plan is for the cluster's devices.
  if (on.foreign) {
    planned.plan.device = device::Kind::cuda;
    planned.plan.staging = std::numeric_limits<std::size_t>::max();
  }
  std::string text = plan_text(on.config, planned);
  const std::string note = fmt::format("# On {}: {}\n", on.cluster.name, launch);
  const std::size_t after = text.find("\nmodel = ") + 1;
  return text.insert(after, note);
}

}  // namespace trireme::train
