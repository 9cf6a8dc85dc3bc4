#include "trireme/compress/prune.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/train/graphs.h"
#include "trireme/train/prune.h"

namespace trireme::compress {
namespace {

using Pattern = PruneStep::Pattern;
using Group = passes::DimensionGroup;

struct Named {
  const char* name;
  Pattern pattern;
};
constexpr std::array<Named, 6> kPatterns = {{{"unstructured", Pattern::unstructured},
                                             {"2:4", Pattern::two_of_four},
                                             {"heads", Pattern::heads},
                                             {"neurons", Pattern::neurons},
                                             {"channels", Pattern::channels},
                                             {"blocks", Pattern::blocks}}};

// The model's graphs, of which the groups and the shapes of the states are read.
compiler::Graphs graphs_of(const Model& model, const train::Registry& registry) {
  train::Config config = model.config;
  config.parallel.mesh = "auto";
  config.train.batch = 1;
  config.train.micro_batch = 1;
  config.prune = {};
  config.distil = {};
  return train::build_graphs(config, registry, {});
}

const Shape& shape_of(const compiler::Graphs& graphs, const std::string& name) {
  return graphs.module.state(graphs.module.find_state(name)).type.shape;
}

// A number in [0, 1) for an element of a tensor.
double drawn(const std::string& name, std::int64_t i, std::uint64_t seed) {
  const std::uint64_t bits = site_of(fmt::format("{} {} {}", seed, name, i));
  return static_cast<double>(bits >> 11) / 9007199254740992.0;
}

// The `keep` largest of some scores, in rising order of their places; of equals, those that come first.
std::vector<std::int64_t> largest(const std::vector<double>& scores, std::int64_t keep) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(keep));
  std::sort(order.begin(), order.end());
  return order;
}

// How many of `slices` are left. Kernels work on sixteen at a time: of many, a multiple of that.
std::int64_t left_of(std::int64_t slices, double sparsity) {
  const auto dropped = static_cast<std::int64_t>(std::round(sparsity * static_cast<double>(slices)));
  const std::int64_t left = std::max<std::int64_t>(1, slices - dropped);
  constexpr std::int64_t kMany = 256, kUnit = 16;
  return slices < kMany || sparsity == 0 ? left : std::max(kUnit, (left + kUnit / 2) / kUnit * kUnit);
}

// A tensor seen along one dimension: [outer, slices, inner].
struct Along {
  std::int64_t outer, slices, inner;
  Along(const Shape& shape, const Group::Member& member, std::int64_t count)
      : outer(shape.elements(0, member.dim)),
        slices(count),
        inner(member.repeat * shape.elements(member.dim + 1, shape.rank())) {}
};

std::vector<double> slice_scores(const Model& model, const Group& group, const compiler::Graphs& graphs,
                                 const PruneOptions& options) {
  std::vector<double> scores(static_cast<std::size_t>(group.slices), 0);
  if (options.random) {
    for (std::int64_t s = 0; s < group.slices; ++s)
      scores[static_cast<std::size_t>(s)] = drawn(group.members.front().state, s, options.seed);
    return scores;
  }
  for (const Group::Member& member : group.members) {
    if (!member.trained) continue;
    const Along a(shape_of(graphs, member.state), member, group.slices);
    const std::span<const float> w = model.floats(member.state);
    for (std::int64_t o = 0; o < a.outer; ++o)
      for (std::int64_t s = 0; s < a.slices; ++s)
        for (std::int64_t i = 0; i < a.inner; ++i) {
          const double x = w[static_cast<std::size_t>((o * a.slices + s) * a.inner + i)];
          scores[static_cast<std::size_t>(s)] += x * x;
        }
  }
  return scores;
}

// Of a member, the slices in `kept` alone.
void take(Model& model, Shape& shape, const Group::Member& member, std::int64_t slices,
          const std::vector<std::int64_t>& kept) {
  const Along a(shape, member, slices);
  std::vector<std::byte>& bytes = model.states.at(member.state);
  const auto run = static_cast<std::size_t>(a.inner) * sizeof(float);
  std::vector<std::byte> fresh;
  fresh.reserve(static_cast<std::size_t>(a.outer) * kept.size() * run);
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (const std::int64_t s : kept) {
      const auto first =
          bytes.begin() + static_cast<std::ptrdiff_t>(o * a.slices + s) * static_cast<std::ptrdiff_t>(run);
      fresh.insert(fresh.end(), first, first + static_cast<std::ptrdiff_t>(run));
    }
  bytes = std::move(fresh);
  shape[member.dim] = std::ssize(kept) * member.repeat;
}

// The keys of [model] after slices have left: `left` of `slices` in every group.
void shrink_keys(models::ModelConfig& m, Group::Kind kind, std::int64_t slices, std::int64_t left) {
  switch (kind) {
    case Group::Kind::heads:
      if (m.head_dim == 0) m.head_dim = m.width / m.heads;
      m.heads = m.heads / slices * left;
      if (m.kv_heads != 0) m.kv_heads = left;
      break;
    case Group::Kind::neurons: (m.ffn == slices ? m.ffn : m.width) = left; break;
    case Group::Kind::channels: m.width = left; break;
  }
}

void prune_slices(Model& model, const PruneStep& step, Group::Kind kind, const PruneOptions& options,
                  const train::Registry& registry) {
  const compiler::Graphs graphs = graphs_of(model, registry);
  const std::vector<Group> all = passes::dimension_groups(graphs.module, graphs.module.graph("micro"));
  std::vector<Group> groups = all;
  std::erase_if(groups, [&](const Group& group) { return group.kind != kind; });
  const std::string& family = model.config.model.family;
  if (groups.empty()) refuse("--prune {}: {}", step.text, train::no_such_slices(model.config.model, kind, all));
  // Groups are as large as the first, or by a whole factor larger, in proportion.
  const std::int64_t first = groups.front().slices;
  const std::int64_t left = left_of(first, step.sparsity);
  // All are ranked before the first is cut: a tensor may be a member of two groups.
  std::vector<std::vector<std::int64_t>> kept;
  for (const Group& group : groups) {
    if (group.slices % first != 0)
      refuse("--prune {}: the layers of model.family = \"{}\" have {} and {} {}, which no smaller one has", step.text,
             family, first, group.slices, passes::name_of(kind));
    kept.push_back(largest(slice_scores(model, group, graphs, options), group.slices / first * left));
  }
  std::map<std::string, Shape> shapes;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const Group::Member& member : groups[g].members) {
      Shape& shape = shapes.try_emplace(member.state, shape_of(graphs, member.state)).first->second;
      take(model, shape, member, groups[g].slices, kept[g]);
    }
  shrink_keys(model.config.model, kind, first, left);
  // The family must agree.
  const compiler::Graphs smaller = graphs_of(model, registry);
  for (const ir::State& state : smaller.module.states) {
    if (!state.saved || state.step_local || !model.states.contains(state.name)) continue;
    if (TensorType{DType::f32, state.type.shape}.bytes() != model.states.at(state.name).size())
      refuse("--prune {}: model.family = \"{}\" has no model in which '{}' is smaller; its shapes follow from others",
             step.text, family, state.name);
  }
}

// "blocks.3.": the layer that a state belongs to; nothing: it is none of a numbered block.
std::optional<std::int64_t> block_of(const std::string& name) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!name.starts_with(kBlocks)) return std::nullopt;
  std::int64_t number = 0;
  const char* begin = name.data() + kBlocks.size();
  if (std::from_chars(begin, name.data() + name.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

Model without_blocks(const Model& model, const std::vector<bool>& leaves) {
  Model result{model.config, {}};
  std::vector<std::int64_t> place(leaves.size(), 0);
  std::int64_t left = 0;
  for (std::size_t b = 0; b < leaves.size(); ++b) {
    place[b] = left;
    if (!leaves[b]) ++left;
  }
  for (const auto& [name, bytes] : model.states) {
    const auto block = block_of(name);
    if (!block) {
      result.states[name] = bytes;
      continue;
    }
    const auto b = static_cast<std::size_t>(*block);
    if (leaves[b]) continue;
    const std::size_t end = name.find('.', std::string_view("blocks.").size());
    result.states[fmt::format("blocks.{}{}", place[b], name.substr(end))] = bytes;
  }
  result.config.model.layers = left;
  return result;
}

void prune_blocks(Model& model, const PruneStep& step, const PruneOptions& options) {
  const std::string& family = model.config.model.family;
  if (family != "gpt2" && family != "llama")
    refuse("--prune {}: blocks of model.family = \"{}\" do not fit each other; those of gpt2 and llama do", step.text,
           family);
  const auto blocks = static_cast<std::size_t>(model.config.model.layers);
  const auto leaving = std::min<std::int64_t>(std::llround(step.sparsity * static_cast<double>(blocks)),
                                              static_cast<std::int64_t>(blocks) - 1);
  std::vector<double> scores(blocks, 0);
  for (std::size_t b = 0; b < blocks; ++b) {
    if (options.random) {
      scores[b] = drawn("blocks", static_cast<std::int64_t>(b), options.seed);
      continue;
    }
    if (options.loss) {
      std::vector<bool> one(blocks, false);
      one[b] = true;
      scores[b] = options.loss(without_blocks(model, one));
      continue;
    }
    for (const auto& [name, bytes] : model.states)
      if (block_of(name) == static_cast<std::int64_t>(b))
        for (const float x : model.floats(name)) scores[b] += static_cast<double>(x) * static_cast<double>(x);
  }
  std::vector<bool> leaves(blocks, true);
  for (const std::int64_t b : largest(scores, static_cast<std::int64_t>(blocks) - leaving))
    leaves[static_cast<std::size_t>(b)] = false;
  model = without_blocks(model, leaves);
}

// The smallest elements of a tensor become zero; those that are zero already are among them.
void prune_elements(Model& model, const std::string& name, double sparsity, bool two_of_four,
                    const PruneOptions& options) {
  const std::span<float> w = model.floats(name);
  const auto size = [&](std::int64_t i) {
    if (w[static_cast<std::size_t>(i)] == 0) return -1.0;
    return options.random ? drawn(name, i, options.seed)
                          : std::abs(static_cast<double>(w[static_cast<std::size_t>(i)]));
  };
  const std::int64_t n = std::ssize(w);
  const std::int64_t group = two_of_four ? 4 : n;
  std::vector<std::int64_t> order;
  for (std::int64_t begin = 0; begin < n; begin += group) {
    order.resize(static_cast<std::size_t>(std::min(group, n - begin)));
    std::iota(order.begin(), order.end(), begin);
    const auto dropped = std::llround(sparsity * static_cast<double>(order.size()));
    std::vector<double> sizes;
    sizes.reserve(order.size());
    for (const std::int64_t i : order) sizes.push_back(size(i));
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return sizes[static_cast<std::size_t>(a - begin)] > sizes[static_cast<std::size_t>(b - begin)];
    });
    for (auto i = order.end() - dropped; i != order.end(); ++i) w[static_cast<std::size_t>(*i)] = 0;
  }
}

std::vector<std::string> prunable(const Model& model, const train::Registry& registry) {
  return train::prunable_parameters(graphs_of(model, registry));
}

}  // namespace

std::vector<PruneStep> parse_prune(const std::string& text) {
  std::vector<PruneStep> steps;
  std::vector<std::string> names;
  for (const Named& named : kPatterns) names.emplace_back(named.name);
  for (const std::string& part : split(text, ',')) {
    PruneStep step;
    step.text = std::string(trim(part));
    const auto named = std::find_if(kPatterns.begin(), kPatterns.end(), [&](const Named& n) {
      return step.text == n.name || step.text.starts_with(std::string(n.name) + ":");
    });
    if (named == kPatterns.end()) {
      const std::string word = step.text.substr(0, step.text.find(':'));
      const auto near = nearest(word, names);
      refuse("--prune {}: there is no pattern \"{}\"; {}", text, word,
             near ? "did you mean \"" + *near + "\"?" : fmt::format("there are {}", fmt::join(names, ", ")));
    }
    step.pattern = named->pattern;
    const std::size_t length = std::string_view(named->name).size();
    if (step.text.size() > length) {
      const char* begin = step.text.data() + length + 1;
      const char* end = step.text.data() + step.text.size();
      const auto [rest, error] = std::from_chars(begin, end, step.sparsity);
      if (error != std::errc() || rest != end || !(step.sparsity > 0 && step.sparsity < 1))
        refuse("--prune {}: the share that is pruned must be above 0 and below 1, got \"{}\"; an example is {}:0.3",
               text, std::string(begin, end), named->name);
    }
    if (step.pattern == Pattern::two_of_four && step.sparsity != 0.5)
      refuse("--prune {}: 2:4 leaves two of each four; the nearest is \"2:4\"", text);
    steps.push_back(std::move(step));
  }
  return steps;
}

void prune(Model& model, const PruneStep& step, const PruneOptions& options, const train::Registry& registry) {
  // What is left is a model of its own: neither the folder's it began with, nor one that is to be pruned again.
  model.config.init.from.clear();
  model.config.prune = {};
  model.config.distil = {};
  switch (step.pattern) {
    case Pattern::heads: return prune_slices(model, step, Group::Kind::heads, options, registry);
    case Pattern::neurons: return prune_slices(model, step, Group::Kind::neurons, options, registry);
    case Pattern::channels: return prune_slices(model, step, Group::Kind::channels, options, registry);
    case Pattern::blocks: return prune_blocks(model, step, options);
    case Pattern::unstructured:
    case Pattern::two_of_four: break;
  }
  const compiler::Graphs graphs = graphs_of(model, registry);
  const bool two_of_four = step.pattern == Pattern::two_of_four;
  const std::vector<std::string> names = train::prunable_parameters(graphs);
  for (const std::string& name : names)
    if (two_of_four && train::summed_elements(graphs, name) % 4 != 0)
      refuse("--prune 2:4: the sums of '{}' {} are over no multiple of 4 elements; the nearest is \"unstructured:0.5\"",
             name, shape_of(graphs, name).str());
  for (const std::string& name : names) prune_elements(model, name, step.sparsity, two_of_four, options);
}

std::vector<Sensitivity> sensitivity(const Model& model, std::span<const double> sparsities,
                                     const PruneOptions& options, const train::Registry& registry,
                                     const std::function<void(std::size_t done, std::size_t all)>& progress) {
  if (!options.loss) refuse("--sensitivity needs held-out data: set data.holdout or data.eval");
  std::vector<Sensitivity> result;
  const std::vector<std::string> names = prunable(model, registry);
  std::size_t done = 0;
  for (const std::string& name : names) {
    Sensitivity one{name, std::ssize(model.floats(name)), {}};
    for (const double sparsity : sparsities) {
      Model pruned = model;
      prune_elements(pruned, name, sparsity, false, options);
      one.loss.push_back(options.loss(pruned));
      if (progress) progress(++done, names.size() * sparsities.size());
    }
    result.push_back(std::move(one));
  }
  return result;
}

double sparsity_of(const Model& model, const train::Registry& registry) {
  double zeros = 0, all = 0;
  for (const std::string& name : prunable(model, registry)) {
    const std::span<const float> w = model.floats(name);
    zeros += static_cast<double>(std::count(w.begin(), w.end(), 0.0F));
    all += static_cast<double>(w.size());
  }
  return all == 0 ? 0 : zeros / all;
}

}  // namespace trireme::compress
