#include "trireme/train/graphs.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/cleanup.h"
#include "trireme/program/schedule/generate.h"
#include "trireme/train/continues.h"
#include "trireme/train/distil.h"

namespace trireme::train {
namespace {

using ir::Builder;

models::Batch inputs(const Builder& b, const models::ModelConfig& c, const models::Model& model, const Shape& tokens,
                     bool with_targets) {
  models::Batch batch;
  batch.predicting = !with_targets;
  for (const models::Input& input : model.inputs) {
    ir::Value& value = batch.inputs[input.name];
    const Shape rows = input.whole ? Shape{} : Shape{tokens[0]};
    if (with_targets || !input.target) value = b.input(input.name, {input.row.dtype, rows + input.row.shape});
  }
  if (!model.inputs.empty()) return batch;
  if (model.images) {
    batch.images = b.input("images", {DType::f32, {tokens[0], c.image, c.image, c.channels}});
    if (with_targets) batch.labels = b.input("labels", {DType::i32, {tokens[0]}});
  } else {
    batch.tokens = b.input("tokens", {DType::i32, tokens});
    if (with_targets) batch.targets = b.input("targets", {DType::i32, tokens});
  }
  return batch;
}

// Those of them that go by rows.
std::vector<std::string> row_inputs(const models::Model& model) {
  if (model.inputs.empty()) return {"tokens", "targets", "images", "labels"};
  std::vector<std::string> names;
  for (const models::Input& input : model.inputs)
    if (!input.whole) names.push_back(input.name);
  return names;
}

// The share of images whose label has the largest logit, where the loss is a cross-entropy of logits.
void output_accuracy(const Builder& b, const ir::Value& loss, const ir::Value& labels) {
  const ir::Graph& graph = loss.site()->module->graph(loss.site()->graph);
  const auto made = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
    return !node.outputs.empty() && node.outputs.front() == loss.id();
  });
  if (made == graph.nodes.end() || made->op->name != "cross_entropy") return;
  const ir::Value logits(loss.site(), loss.scope(), made->inputs.front());
  const double scale = made->attributes.real("scale");
  b.output("accuracy", ir::apply1("accuracy", {logits, labels}, {{"scale", scale}}));
}

// How many tokens the programs that continue a sequence take: one at a time, and larger pieces for prompts.
std::vector<std::int64_t> prefill_rows(std::int64_t longest) {
  std::vector<std::int64_t> sizes = {1};
  for (const std::int64_t rows : {8, 32, 128, 512})
    if (rows / 2 < longest) sizes.push_back(rows);
  return sizes;
}

// Whether every micro-batch has an update of its own.
bool updates_each_micro_batch(const Config& config, const CompileOptions& options) {
  if (options.purpose != Purpose::train || mesh_of(config).size_of(ir::kPipelineAxis) == 1) return false;
  const program::PipelineName pipeline = program::parse_pipeline(config.parallel.pipeline.text());
  if (pipeline.kind != program::PipelineName::Kind::file)
    return pipeline.kind == program::PipelineName::Kind::pipedream;
  const bool kept = options.decided && !options.decided->schedule.empty();
  const program::Schedule schedule =
      kept ? program::parse_schedule(fmt::format("{}", fmt::join(options.decided->schedule, "\n")))
           : read_given_schedule(pipeline.path);
  return schedule.asynchronous() && !schedule.delayed;
}

// The logits of one row of so many tokens.
void build_predictor(ir::Module& module, const std::string& graph, std::int64_t tokens, const Config& config,
                     const models::Model& model) {
  Builder predict(module, graph);
  predict.training = false;
  const ir::Value logits = model.build(predict, inputs(predict, config.model, model, {1, tokens}, false), config.model);
  predict.output("logits", ir::apply1("cast", {logits}, {{"to", std::string("f32")}}));
}

// The graphs that continue a sequence, which only some models can do.
void build_pieces(compiler::Graphs& graphs, const Config& config, const models::Model& model) {
  ir::Module whole;
  whole.registry = graphs.module.registry;
  build_predictor(whole, "predict", config.model.context, config, model);
  try {
    for (const std::int64_t rows : graphs.prefill)
      build_predictor(graphs.module, compiler::prefill_graph(rows), rows, config, model);
  } catch (const Error& e) {
    refuse_to_continue(config.model.family, fmt::format("this model cannot be built for them: {}", e.message()));
  }
  check_continues(config.model.family, graphs, whole, "predict");
}

// Whether rows count in the loss by their targets alone: an op that passes over negative ones makes it of them, and
// nothing comes behind.
bool by_targets_alone(const ir::Graph& graph, const ir::Value& loss) {
  for (const ir::Node& node : graph.nodes) {
    if (node.outputs.empty() || node.outputs.front() != loss.id() || node.op->index.operand < 0) continue;
    const ir::ValueInfo& targets = graph.value(node.inputs[static_cast<std::size_t>(node.op->index.operand)]);
    return targets.kind == ir::ValueInfo::Kind::input && (targets.name == "targets" || targets.name == "labels") &&
           node.op->index.range(graph.input_types(node), node.attributes).negative;
  }
  return false;
}

void build(compiler::Graphs& graphs, const Config& config, const Registry& registry, bool step_alone,
           bool updates_each) {
  const models::Model& model = registry.models.at(config.model.family);
  ir::Module& module = graphs.module;
  const Shape batch{graphs.micro_rows, config.model.context};
  if (graphs.purpose == Purpose::train) {
    Builder micro(module, "micro");
    // Where every micro-batch has an update of its own, a loss is the mean over its rows.
    micro.rows_per_step = static_cast<double>(updates_each ? graphs.micro_rows : config.train.batch);
    const models::Batch in = inputs(micro, config.model, model, batch, true);
    micro.accumulate("loss", config.distil.teacher.empty() ? model.build(micro, in, config.model)
                                                           : distilled_loss(micro, in, config, registry));
  }
  if (step_alone) return;
  if (graphs.purpose != Purpose::generate) {
    Builder eval(module, "eval");
    eval.training = false;
    const models::Batch in = inputs(eval, config.model, model, batch, true);
    const ir::Value loss = model.build(eval, in, config.model);
    eval.output("loss", loss);
    graphs.targets_alone = by_targets_alone(module.graph("eval"), loss);
    if (model.images) output_accuracy(eval, loss, in.labels);
  }
  if (graphs.purpose == Purpose::train) build_predictor(module, "predict", config.model.context, config, model);
  if (!graphs.prefill.empty()) build_pieces(graphs, config, model);
}

}  // namespace

compiler::Graphs build_graphs(const Config& config, const Registry& registry, const CompileOptions& options) {
  const models::Model& model = registry.models.at(config.model.family);
  compiler::Graphs graphs;
  graphs.purpose = options.purpose;
  graphs.module.registry = &registry.ops;
  graphs.row_inputs = row_inputs(model);
  graphs.micro_rows = micro_batch_rows(config);
  graphs.micro_batches = static_cast<int>(config.train.batch / graphs.micro_rows);
  if (options.purpose == Purpose::generate) {
    if (model.images || !model.inputs.empty())
      refuse("model.family = \"{}\" does not predict tokens", config.model.family);
    const std::int64_t most = config.model.context;
    const std::int64_t sequence = options.sequence == 0 ? most : std::min(most, options.sequence);
    graphs.prefill = prefill_rows(sequence);
    // The last piece of a prompt may be padded beyond the sequence's end.
    graphs.cache_rows = sequence + graphs.prefill.back();
  }
  graphs.optimizer = {.kind = passes::Optimizer::parse(config.train.optimizer.text()),
                      .beta1 = config.train.betas[0],
                      .beta2 = config.train.betas[1],
                      .eps = config.train.eps,
                      .momentum = config.train.momentum,
                      .weight_decay = config.train.weight_decay,
                      .clip = config.train.clip};
  graphs.loss_scale = {.start = config.train.loss_scale, .window = config.train.loss_scale_window};
  build(graphs, config, registry, options.step_alone && options.purpose == Purpose::train,
        updates_each_micro_batch(config, options));
  // What a model makes and nobody reads would be given stages and shards like all else.
  for (ir::Graph& graph : graphs.module.graphs)
    if (passes::remove_unread(graph)) graph.compact();
  return graphs;
}

program::Schedule read_given_schedule(const std::string& path) {
  try {
    return program::read_schedule(path);
  } catch (const Error& e) {
    const std::string named = path + ": ";
    const std::string why = e.message().starts_with(named) ? e.message().substr(named.size()) : e.message();
    refuse("parallel.pipeline = \"file:{}\": {}", path, why);
  }
}

}  // namespace trireme::train
