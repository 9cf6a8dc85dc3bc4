#include "trireme/train/plan_search.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/passes/chain.h"
#include "trireme/passes/stage.h"
#include "trireme/planner/integer_program.h"
#include "trireme/planner/op_strategies.h"
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
  for (const passes::Segment& segment : passes::find_chain(graph).segments)
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
  settings.push_back(fmt::format("parallel.stages=[{}]", fmt::join(c.stages, ",")));
  return settings;
}

PlanSearch::PlanSearch(Config config, const Registry& registry, PlanRequest request)
    : config_(std::move(config)), registry_(registry), request_(std::move(request)) {
  const ir::Mesh mesh = mesh_of(config_, request_.ranks);
  if (is_fixed("parallel.mesh") && (mesh.size_of(ir::kHeightAxis) > 1 || mesh.size_of(ir::kWidthAxis) > 1))
    refuse(
        "parallel.mesh = \"{}\": plans are searched over pp, dp and tp, and not over h and w; leave the mesh out, or "
        "score this one with `trireme simulate`",
        config_.parallel.mesh);
  if (config_.parallel.server != Server::none)
    refuse("parallel.server = \"{}\": plans are searched without parameter servers; the nearest is \"none\"",
           config_.parallel.server.text());
  for (const cluster::Ranks& r : request_.cluster.ranks)
    if (r.last >= request_.ranks)
      refuse("cluster {}: ranks {} to {} differ, and the plan is for {}; --ranks {} is the least",
             request_.cluster.name, r.first, r.last, request_.ranks, r.last + 1);
  config_.parallel.plan = Planning::none;
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
  problem_.overlap = config_.parallel.overlap && request_.cluster.current().overlap_groups;
  problem_.profile = [this](const LayerKey& key) { return profile(key); };
  problem_.score = [this](const Candidate& candidate) { return score(candidate); };
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
    Candidate fixed{.pp = mesh.size_of(ir::kPipelineAxis), .dp = mesh.size_of(ir::kDataAxis)};
    fixed.layer.tp = mesh.size_of(ir::kTensorAxis);
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
  // A person's annotations stay; otherwise the ops' strategies are chosen too, apart from the preset of the family.
  if (config_.parallel.sharding.empty() && planner::has_integer_solver()) space.shardings = 2;
  if (is_fixed("parallel.stages") && !config_.parallel.stages.empty()) space.stages = {config_.parallel.stages};
  problem_.limit = c.device.memory;
  // Ranks of a CPU share its memory.
  if (c.device.kind == "cpu")
    problem_.limit /= static_cast<double>(std::min<std::int64_t>(c.node.devices, request_.ranks));
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
  if (config_.parallel.mesh == "auto" || !problem_.space.fixed_meshes.empty()) return;
  const ir::Mesh mesh = mesh_of(config_, request_.ranks);
  if (mesh.ranks() != request_.ranks || mesh.size_of(ir::kHeightAxis) * mesh.size_of(ir::kWidthAxis) > 1) return;
  Candidate own{.pp = mesh.size_of(ir::kPipelineAxis), .dp = mesh.size_of(ir::kDataAxis)};
  own.layer.tp = mesh.size_of(ir::kTensorAxis);
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
  config.parallel.mesh = fmt::format("{}={}", ir::kTensorAxis, key.tp);
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
  return config;
}

const std::vector<passes::Annotation>& PlanSearch::shardings(int tp) const {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = shardings_.try_emplace(tp);
  if (fresh) {
    const Config config = layer_config({.tp = tp});
    // Not the preset: parameters begin unsharded.
    Planned planned = make_plan(config, registry_, {.threads = 1, .step_alone = true});
    planned.plan.sharding.clear();
    // Whole parameters on every rank would be data parallelism by another name.
    constexpr double kUneven = 1.2;
    at->second = planner::choose_shardings(planned.graphs, planned.plan, request_.cluster,
                                           {.axis = ir::kTensorAxis, .state_share = kUneven / tp})
                     .annotations;
  }
  return at->second;
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

planner::Scored PlanSearch::simulated(const Candidate& candidate, std::int64_t micro_batches) const {
  planner::Scored scored;
  try {
    Config config = under(candidate);
    config.train.batch = micro_batches * candidate.dp * candidate.layer.micro_batch;
    const OnCluster on = compile_on(config, registry_, request_.cluster, {.step_alone = true, .resolved = true});
    const simulator::Simulation s = simulator::simulate(on.compiled, on.cluster);
    scored.seconds = s.step_seconds;
    scored.bytes = on.compiled.arena_bytes();
    scored.fits = s.fits && static_cast<double>(scored.bytes) <= problem_.limit;
    scored.mean = s.mean;
    for (const Role& role : on.compiled.roles)
      scored.work += 2 * role.module.graph("micro").nodes.size() + role.program("step").instructions.size() / 4;
    for (std::size_t a = 0; a < s.cast.actors.size(); ++a)
      scored.price += s.cast.ranks[a] * on.cluster.device_of(s.cast.rank[a]).price;
  } catch (const Error& e) {
    scored.refused = e.message();
  }
  return scored;
}

// Once a pipeline is full, every further round of micro-batches adds the same: of many, two numbers of them are
// compiled that leave the same rest in the last round, and hold as many at once.
planner::Scored PlanSearch::score(const Candidate& c) const {
  const std::int64_t all = config_.train.batch / c.dp / c.layer.micro_batch;
  const std::int64_t round = c.pp;
  using Kind = program::PipelineName::Kind;
  const bool grows = c.pp > 1 && (c.pipeline.kind == Kind::gpipe || c.pipeline.kind == Kind::file);
  const bool interleaved = c.pp > 1 && c.pipeline.kind == Kind::interleaved;
  const std::int64_t first = interleaved ? 2 * round + all % round : std::max<std::int64_t>(2, round);
  const std::int64_t second = first + (interleaved ? round : 1);
  if (grows || all <= 2 * second) return simulated(c, all);
  const planner::Scored one = simulated(c, first);
  if (!one.feasible()) return one;
  planner::Scored two = simulated(c, second);
  const double further = static_cast<double>(all - second) / static_cast<double>(second - first);
  const auto extend = [&](double& value, double before) { value += further * (value - before); };
  extend(two.seconds, one.seconds);
  extend(two.mean.compute, one.mean.compute);
  extend(two.mean.exposed_communication, one.mean.exposed_communication);
  extend(two.mean.bubble, one.mean.bubble);
  extend(two.mean.waiting, one.mean.waiting);
  two.bytes = std::max(one.bytes, two.bytes);
  two.work += one.work;
  return two;
}

planner::SearchResult PlanSearch::run() const {
  planner::SearchResult result = planner::search(problem_, request_.search);
  if (!result.best.empty() || result.stopped) return result;
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
    planned.plan.overlap_wgrad = on.config.runtime.overlap_wgrad.value_or(!on.images);
  }
  std::string text = plan_text(on.config, planned);
  const std::string note = fmt::format("# On {}: {}\n", on.cluster.name, launch);
  const std::size_t after = text.find("\nmodel = ") + 1;
  return text.insert(after, note);
}

}  // namespace trireme::train
