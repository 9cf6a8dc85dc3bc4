#include "trireme/train/prune.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/train/compile.h"
#include "trireme/train/pruned_weights.h"
#include "trireme/train/schedule.h"
#include "trireme/train/session.h"

namespace trireme::train {
namespace {

std::int64_t begin_of(const Config& config) {
  return config.prune.begin > 0 ? config.prune.begin : std::max<std::int64_t>(1, planned_steps(config) / 4);
}

std::int64_t end_of(const Config& config) {
  return config.prune.end > 0 ? config.prune.end : std::max(begin_of(config), planned_steps(config) * 3 / 4);
}

// Counted from 0.
std::vector<std::int64_t> pruning_steps(const Config& config) {
  const PruneConfig& prune = config.prune;
  std::vector<std::int64_t> steps;
  switch (prune.schedule.kind()) {
    case PruneSchedule::oneshot: steps = {begin_of(config)}; break;
    case PruneSchedule::gradual:
      for (std::int64_t at = begin_of(config); at <= end_of(config); at += prune.every) steps.push_back(at);
      break;
    case PruneSchedule::iterative:
      for (std::int64_t round = 0; round < prune.rounds; ++round)
        steps.push_back(begin_of(config) + round * prune.every);
      break;
  }
  return steps;
}

bool rewinds(const Config& config) {
  return config.prune.schedule == PruneSchedule::iterative && config.prune.rewind >= 0;
}

// Prunings that would come after the `last` step, and what brings them before it.
[[noreturn]] void refuse_late(const Config& config, const std::vector<std::int64_t>& steps, std::int64_t last) {
  const PruneConfig& prune = config.prune;
  const bool gradual = prune.schedule == PruneSchedule::gradual;
  std::string nearest = fmt::format("prune.{} = {}", gradual ? "end" : "begin", std::max<std::int64_t>(1, last));
  if (const std::int64_t room = last - begin_of(config); prune.schedule == PruneSchedule::iterative && room >= 0) {
    const std::int64_t fits = prune.rounds > 1 ? room / (prune.rounds - 1) : 0;
    nearest = fits > 0 ? fmt::format("prune.every = {}", fits)
                       : fmt::format("prune.rounds = {}", room / std::max<std::int64_t>(1, prune.every) + 1);
  }
  refuse("prune.{} = {}: the last pruning would be in step {}, and train.steps = {}; the nearest is {}",
         gradual ? "end" : "begin", gradual ? end_of(config) : begin_of(config), steps.empty() ? 0 : steps.back() + 1,
         config.train.steps, nearest);
}

}  // namespace

std::optional<passes::DimensionGroup::Kind> slices_of(const Choice<PrunePattern>& pattern) {
  switch (pattern.kind()) {
    case PrunePattern::heads: return passes::DimensionGroup::Kind::heads;
    case PrunePattern::neurons: return passes::DimensionGroup::Kind::neurons;
    case PrunePattern::channels: return passes::DimensionGroup::Kind::channels;
    case PrunePattern::unstructured:
    case PrunePattern::two_of_four:
    case PrunePattern::blocks: break;
  }
  return std::nullopt;
}

std::vector<std::string> prunable_parameters(const compiler::Graphs& graphs) {
  const ir::Graph& micro = graphs.module.graph("micro");
  std::set<ir::StateId> weights, others;
  for (const ir::Node& node : micro.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == ir::kNone) continue;
      const ir::ValueInfo& value = micro.value(node.inputs[i]);
      if (value.kind != ir::ValueInfo::Kind::state || !graphs.module.state(value.state).trained) continue;
      const bool product = (node.op->name == "matmul" || node.op->name == "conv2d") && i == 1;
      (product && value.type.shape.rank() > 1 ? weights : others).insert(value.state);
    }
  std::vector<std::string> names;
  for (const ir::StateId id : weights)
    if (!others.contains(id)) names.push_back(graphs.module.state(id).name);
  return names;
}

std::int64_t summed_elements(const compiler::Graphs& graphs, const std::string& parameter) {
  const ir::Graph& micro = graphs.module.graph("micro");
  const ir::StateId id = graphs.module.find_state(parameter);
  const Shape& shape = graphs.module.state(id).type.shape;
  for (const ir::Node& node : micro.nodes) {
    if (node.op->name != "matmul" || micro.value(node.inputs[1]).state != id) continue;
    const std::int64_t split = node.attributes.integer("b_split");
    if (node.attributes.boolean("trans_b") && split > 0) return shape.elements(static_cast<int>(split), shape.rank());
    return shape.back();
  }
  return shape.elements(1, shape.rank());
}

passes::Prune::Options pruning(const Config& config, const compiler::Graphs& graphs) {
  const PruneConfig& prune = config.prune;
  passes::Prune::Options options;
  switch (prune.method.kind()) {
    case Prune::none: fail("there is nothing to prune by");
    case Prune::magnitude: options.score = passes::Prune::Score::magnitude; break;
    case Prune::movement: options.score = passes::Prune::Score::movement; break;
    case Prune::random: options.score = passes::Prune::Score::random; break;
  }
  options.sparsity = prune.sparsity;
  options.ramp = prune.schedule == PruneSchedule::iterative ? "geometric" : "cubic";
  options.steps = pruning_steps(config);
  options.prunings = std::ssize(options.steps);
  options.rewind = rewinds(config);
  options.remembered = std::max<std::int64_t>(0, prune.rewind - 1);
  if (const auto kind = slices_of(prune.pattern)) {
    const auto all = passes::dimension_groups(graphs.module, graphs.module.graph("micro"));
    for (const passes::DimensionGroup& found : all) {
      if (found.kind != *kind) continue;
      passes::Prune::Group group;
      group.slices = found.slices;
      for (const passes::DimensionGroup::Member& member : found.members)
        if (member.trained) group.members.push_back({member.state, member.dim, member.repeat});
      if (!group.members.empty()) options.groups.push_back(std::move(group));  // a teacher's layers stay whole
    }
    if (options.groups.empty())
      refuse("prune.pattern = \"{}\": {}", prune.pattern, no_such_slices(config.model, *kind, all));
    return options;
  }
  options.parameters = prunable_parameters(graphs);
  if (prune.pattern == PrunePattern::two_of_four) {
    options.keep = 2;
    options.of = 4;
    for (const std::string& name : options.parameters) {
      const Shape& shape = graphs.module.state(graphs.module.find_state(name)).type.shape;
      if (summed_elements(graphs, name) % 4 != 0)
        refuse(
            "prune.pattern = \"2:4\" takes two of each four elements along the sums, and those of '{}' {} are no "
            "multiple "
            "of 4; choose another model.width or model.ffn, or prune.pattern = \"unstructured\"",
            name, shape.str());
    }
  }
  return options;
}

std::string no_such_slices(const models::ModelConfig& model, passes::DimensionGroup::Kind kind,
                           const std::vector<passes::DimensionGroup>& groups) {
  using Kind = passes::DimensionGroup::Kind;
  std::string nearest = "unstructured";
  for (const Kind other : {Kind::heads, Kind::channels, Kind::neurons})
    if (std::any_of(groups.begin(), groups.end(), [&](const auto& group) { return group.kind == other; }))
      nearest = passes::name_of(other);
  const bool one = kind == Kind::heads && model.heads > 0 && (model.heads == 1 || model.kv_heads == 1);
  return fmt::format(
      "{}; the nearest is \"{}\"",
      one ? fmt::format("heads leave with the key-value head that they read, and model.{} = 1 is all there "
                        "are",
                        model.heads == 1 ? "heads" : "kv_heads")
          : fmt::format("model.family = \"{}\" has no {}", model.family, passes::name_of(kind)),
      nearest);
}

void check_pruning(const Config& config) {
  const PruneConfig& prune = config.prune;
  if (prune.method == Prune::none) {
    for (const char* key : {"prune.sparsity", "prune.pattern", "prune.schedule", "prune.begin", "prune.end",
                            "prune.every", "prune.rounds", "prune.rewind"})
      if (config.is_given(key) && value_text(config, key) != value_text(Config{}, key))
        refuse("{} = {} belongs to pruning, and prune.method is \"none\"; the nearest is prune.method = \"magnitude\"",
               key, value_text(config, key));
    return;
  }
  if (prune.pattern == PrunePattern::blocks)
    refuse(
        "prune.pattern = \"blocks\" takes layers out of a trained model: `trireme compress FROM --out RUN "
        "--prune blocks:0.25`; while training, \"heads\", \"neurons\" and \"channels\" are there");
  // Momenta of each rank's own terms are of other shapes than the parameters.
  const Compress kind = config.parallel.compress.kind();
  const bool own = config.train.optimizer == Optimizer::sgd && (kind == Compress::topk || kind == Compress::onebit);
  if (own && prune.method == Prune::movement)
    refuse(
        "prune.method = \"movement\" scores by the momentum of all ranks, and parallel.compress = \"{}\" keeps that of "
        "each rank's own terms; the nearest is prune.method = \"magnitude\", or parallel.compress = \"int8\"",
        config.parallel.compress);
  if (own && rewinds(config))
    refuse(
        "prune.rewind = {} takes the momentum of all ranks back, and parallel.compress = \"{}\" keeps that of each "
        "rank's own terms; the nearest is parallel.compress = \"int8\"",
        prune.rewind, config.parallel.compress);
  const std::vector<std::int64_t> steps = pruning_steps(config);
  const std::int64_t last = std::max(config.train.steps, planned_steps(config)) - 1;
  if (config.train.steps > 0 && (steps.empty() || steps.back() > last)) refuse_late(config, steps, last);
  if (prune.pattern == PrunePattern::two_of_four) {
    if (prune.schedule != PruneSchedule::oneshot)
      refuse("prune.pattern = \"2:4\" is reached at once; the nearest is prune.schedule = \"oneshot\"");
    if (prune.sparsity != 0.5)
      refuse("prune.pattern = \"2:4\" leaves two of four, prune.sparsity = {}; the nearest is 0.5", prune.sparsity);
  }
  if (rewinds(config) && prune.rewind > begin_of(config))
    refuse("prune.rewind = {} must be a step before the first pruning, prune.begin = {}", prune.rewind,
           begin_of(config));
}

namespace {

// What a rank has of a weight.
struct Zeros {
  double share = 0;
  bool two_of_four = false;
};

Zeros zeros_of(Rank& rank, const ir::State& state) {
  const auto elements = static_cast<std::size_t>(state.type.elements());
  std::vector<float> values(std::min<std::size_t>(elements, 4096));
  const auto share = [&] {
    const auto zeros = std::count(values.begin(), values.end(), 0.0F);
    return static_cast<double>(zeros) / static_cast<double>(std::max<std::size_t>(1, values.size()));
  };
  const auto read = [&] { rank.read_state(state.name, 0, std::as_writable_bytes(std::span(values))); };
  read();
  // Of weights that nobody has pruned, a glance is enough.
  if (share() < kPrunedShare / 2) return {};
  values.resize(elements);
  read();
  bool two_of_four = elements % 4 == 0;
  for (std::size_t i = 0; two_of_four && i < elements; i += 4)
    two_of_four = std::count(values.begin() + static_cast<std::ptrdiff_t>(i),
                             values.begin() + static_cast<std::ptrdiff_t>(i) + 4, 0.0F) >= 2;
  return {share(), two_of_four};
}

}  // namespace

std::string filling_warning(const Config& config, const compiler::Graphs& graphs, Session& session) {
  if (config.prune.method != Prune::none) return {};
  Rank& rank = session.rank(0);
  const ir::Module& module = rank.role().module;
  std::vector<std::string> pruned;
  double first = 0;
  double least = 1;
  bool two_of_four = true;
  for (const std::string& name : prunable_parameters(graphs)) {
    const ir::StateId id = module.find_state(name);
    if (id == ir::kNone || module.state(id).type.dtype != DType::f32) continue;
    const Zeros zeros = zeros_of(rank, module.state(id));
    if (zeros.share < kPrunedShare || zeros.share == 1) continue;
    if (pruned.empty()) first = zeros.share;
    pruned.push_back(name);
    least = std::min(least, zeros.share);
    two_of_four = two_of_four && zeros.two_of_four;
  }
  if (pruned.empty()) return {};
  const std::string pattern =
      two_of_four ? "--prune.pattern=2:4" : fmt::format("--prune.sparsity={:.2f}", std::floor(100 * least) / 100);
  return fmt::format(
      "{} weights have been pruned ({:.1f}% of '{}' are zero, {:.1f}% of each at least), and prune.method = \"none\" "
      "lets their zeros fill up; "
      "to keep them: --prune.method=magnitude {} --prune.schedule=oneshot --prune.begin=1",
      pruned.size(), 100 * first, pruned.front(), 100 * least, pattern);
}

std::int64_t scheduled_step(const Config& config, std::int64_t step) {
  if (config.prune.method == Prune::none || !rewinds(config)) return step;
  for (const std::int64_t at : pruning_steps(config))
    if (step > at && step <= at + config.prune.every) return config.prune.rewind + step - at - 1;
  const std::vector<std::int64_t> steps = pruning_steps(config);
  return step > steps.back() ? config.prune.rewind + step - steps.back() - 1 : step;
}

}  // namespace trireme::train
