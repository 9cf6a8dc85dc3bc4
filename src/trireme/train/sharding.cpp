#include "trireme/train/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/compiler/compile.h"
#include "trireme/compiler/graph_passes.h"
#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/models/families.h"
#include "trireme/train/compile.h"

namespace trireme::train {
namespace {

using passes::Annotation;

// Of the first matrix of each pair, its columns; of tables, the words.
std::vector<Annotation> tensor_preset(const models::ModelConfig& model) {
  const std::string out = fmt::format("out:{}", ir::kTensorAxis);
  const std::string vocab = fmt::format("vocab:{}", ir::kTensorAxis);
  if (model.family == "gpt2")
    return {{"*.attn.qkv.weight", out},
            {"*.mlp.up.weight", out},
            {"wte.weight", vocab},
            {.pattern = "head.weight", .sharding = vocab, .optional = true}};
  if (model.family == "llama")
    return {{"*.attn.q.weight", out},
            {"*.mlp.gate.weight", out},
            {"embed.weight", vocab},
            {.pattern = "head.weight", .sharding = vocab, .optional = true}};
  std::vector<Annotation> all;
  if (model.family == "mlp")
    for (int i = 0; i < model.layers; i += 2) all.push_back({fmt::format("layers.{}.weight", i), out});
  // Channels of every other convolution.
  if (model.family == "convnet")
    for (int i = 0; i < model.layers; i += 2) all.push_back({fmt::format("blocks.{}.conv.weight", i), out});
  if (model.family == "resnet") all.push_back({"*.conv1.weight", out});
  return all;
}

// The user's, the more exact first, which win: names without a *, then patterns by how much of a name they spell out.
// They hold where a batch is trained on or evaluated. A row to predict from, and a sequence that grows, are inputs that
// every rank has whole, and of other values there is less to share out.
std::vector<Annotation> given(const Config& config, bool trains) {
  std::vector<Annotation> all;
  for (const auto& [pattern, sharding] : config.parallel.sharding)
    all.push_back({.pattern = pattern,
                   .sharding = sharding,
                   .graphs = {"micro", "eval"},
                   .optional = !trains,
                   .where_it_fits = true});
  const auto spelt = [](const Annotation& a) {
    const auto any = std::count(a.pattern.begin(), a.pattern.end(), '*');
    return std::pair(any == 0, std::ssize(a.pattern) - any);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Annotation& a, const Annotation& b) { return spelt(a) > spelt(b); });
  return all;
}

}  // namespace

std::vector<Annotation> sharding_of(const Config& config, const ir::Mesh& mesh, bool trains) {
  std::vector<Annotation> all = given(config, trains);
  if (all.empty() && mesh.size_of(ir::kTensorAxis) > 1) all = tensor_preset(config.model);
  // Images are sharded by their height over h and by their width over w; all that is made of them follows.
  for (const auto& [axis, dimension] : {std::pair{ir::kHeightAxis, "height"}, std::pair{ir::kWidthAxis, "width"}}) {
    if (mesh.size_of(axis) == 1) continue;
    const std::string sharding = fmt::format("{}:{}", dimension, axis);
    const auto given = [over = fmt::format(":{}", axis)](const Annotation& a) {
      return a.sharding.find(over) != std::string::npos;
    };
    if (std::none_of(all.begin(), all.end(), given))
      all.push_back({.pattern = "images", .sharding = sharding, .graphs = {"micro", "eval"}});
  }
  // What is between the matrices follows from the first of it, where the matrices have not claimed the axis.
  const models::Model* builtin = models::builtin_families().find(config.model.family);
  const bool images = builtin != nullptr && builtin->images;
  if (config.parallel.sequence && mesh.size_of(ir::kTensorAxis) > 1 && !images)
    all.push_back({.pattern = "*.embedding",
                   .sharding = fmt::format("sequence:{}", ir::kTensorAxis),
                   .priority = 1,
                   .graphs = {"micro", "eval"},
                   .optional = !trains,
                   .instead = builtin != nullptr ? "" : "parallel.sequence = false"});
  return all;
}

std::string preset_warning(const Config& config, const ir::Mesh& mesh) {
  if (config.parallel.sharding.empty() || mesh.size_of(ir::kTensorAxis) == 1) return {};
  std::vector<std::string> left_out;
  for (const Annotation& a : tensor_preset(config.model))
    if (!a.optional && !config.parallel.sharding.contains(a.pattern))
      left_out.push_back(fmt::format("\"{}\" = \"{}\"", a.pattern, a.sharding));
  if (left_out.empty()) return {};
  return fmt::format(
      "parallel.sharding takes the place of what {} has for {} by itself; what it does not reach, every rank along {} "
      "has whole. Left out: {}",
      config.model.family, ir::kTensorAxis, ir::kTensorAxis, fmt::join(left_out, ", "));
}

ExplainedSharding explain_sharding(const Config& config, const Registry& registry) {
  const Planned planned = make_plan(config, registry, {});
  if (planned.plan.mesh.ranks() == 1)
    refuse("nothing is sharded: parallel.mesh = \"{}\" is one rank", config.parallel.mesh);
  compiler::Compilation compilation(planned.graphs);
  compilation.run_until(planned.plan, "propagate");
  ExplainedSharding result{compilation.module(), {}};
  passes::Propagate({planned.plan.mesh, compiler::annotations(planned.graphs, planned.plan)}, &result.reasons)
      .run(result.module);
  return result;
}

}  // namespace trireme::train
