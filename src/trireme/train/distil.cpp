#include "trireme/train/distil.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/io/checkpoint_reader.h"
#include "trireme/models/layers.h"
#include "trireme/passes/chain.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/compile.h"
#include "trireme/train/huggingface.h"
#include "trireme/train/load_slice.h"
#include "trireme/train/run_folder.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

bool is_teacher(const ir::State& state) { return state.name.starts_with(std::string(kTeacher) + "."); }

// The teacher's model, checked against the student's.
models::ModelConfig teacher_model(const Config& config, const Registry& registry) {
  const std::string& from = config.distil.teacher;
  const std::string given = fmt::format("distil.teacher = \"{}\"", from);
  if (!holds_run(from) && !is_huggingface_folder(from))
    refuse("{}: there is no run and no Hugging Face model in that folder", given);
  Config theirs = load_config(from, {}, registry.models);
  if (theirs.memory.weights != StoredWeights::full)
    refuse("{} has quantized weights (memory.weights = \"{}\"), which do not teach; name the run that it was made of",
           given, theirs.memory.weights);
  const models::ModelConfig& own = config.model;
  if (!registry.models.at(own.family).inputs.empty())
    refuse("{}: model.family = \"{}\" reads inputs by names of its own; models of tokens and of images can be taught",
           given, own.family);
  const bool images = registry.models.at(own.family).images;
  if (registry.models.at(theirs.model.family).images != images)
    refuse("{} is a {}, which does not read what model.family = \"{}\" does", given, theirs.model.family, own.family);
  const auto same = [&](const char* what, std::int64_t a, std::int64_t b, const char* key) {
    if (a != b) refuse("{} has {} {}, and {} = {}; teacher and student must agree", given, a, what, key, b);
  };
  if (images) {
    same("classes", theirs.model.classes, own.classes, "model.classes");
    same("pixels of height and width", theirs.model.image, own.image, "model.image");
    same("channels", theirs.model.channels, own.channels, "model.channels");
  } else {
    theirs.model.document_end = own.document_end;  // both read the same documents
    same("tokens in its vocabulary", theirs.model.vocab, own.vocab, "model.vocab");
    if (theirs.model.context < own.context)
      refuse("{} knows {} positions, and model.context = {}; give at most that", given, theirs.model.context,
             own.context);
  }
  resolve_model(theirs, theirs.model.vocab, registry.models);
  return theirs.model;
}

double global_rows(const ir::Builder& b, const ir::Value& rows) {
  return b.rows_per_step > 0 ? b.rows_per_step : static_cast<double>(rows.shape()[0]);
}

// What leaves each numbered layer of a model, by the layer's number; `prefix` is that of the model's names.
std::vector<ir::Value> layer_outputs(const ir::Builder& b, const std::string& prefix, int rank) {
  std::vector<ir::Value> outputs;
  const ir::Graph& graph = b.graph();
  for (std::size_t layer = 0;; ++layer) {
    const std::string name = fmt::format("{}blocks.{}", prefix, layer);
    ir::ValueId last = ir::kNone;
    for (const ir::Node& node : graph.nodes)
      if (passes::layer_of(graph.value(node.outputs.front()).name) == name &&
          graph.type(node.outputs.front()).shape.rank() == rank)
        last = node.outputs.front();
    if (last == ir::kNone) return outputs;
    outputs.push_back(b.here(ir::Value(nullptr, "", last)));
  }
}

// A layer of the student, and the teacher's that is as far along.
struct LayerPair {
  ir::Value own;
  ir::Value target;
  std::size_t begin = 0;  // the nodes that compare them
  std::size_t end = 0;
};

std::vector<LayerPair> layer_pairs(const ir::Builder& b, int rank) {
  const std::vector<ir::Value> own = layer_outputs(b, "", rank);
  const std::vector<ir::Value> theirs = layer_outputs(b, std::string(kTeacher) + ".", rank);
  std::vector<LayerPair> pairs;
  for (std::size_t i = 0; i < own.size() && !theirs.empty(); ++i)
    pairs.push_back({own[i], theirs[std::max<std::size_t>(1, (i + 1) * theirs.size() / own.size()) - 1]});
  return pairs;
}

// The student's layers, each through a projection of its own, against the teacher's.
ir::Value hidden_loss(const ir::Builder& b, double weight, std::vector<LayerPair>& pairs) {
  if (pairs.empty()) refuse("distil.hidden = {}: the models have no blocks to compare", weight);
  ir::Value sum;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    auto& [own, target, begin, end] = pairs[i];
    begin = b.graph().nodes.size();
    const std::int64_t width = target.shape().back();
    const ir::Builder k = b.scope("distil").scope("blocks", static_cast<int>(i));
    const double deviation = std::sqrt(1.0 / static_cast<double>(own.shape().back()));
    const ir::Value projected = models::linear(k, own, {width}, {.bias = false, .deviation = deviation});
    const double per_row = static_cast<double>(target.shape().elements()) / static_cast<double>(target.shape()[0]);
    const double scale = weight / (global_rows(b, target) * per_row * static_cast<double>(pairs.size()));
    const ir::Value error = ir::apply1("squared_error", {k.here(projected), target}, {{"scale", scale}});
    sum = sum ? models::add(sum, error) : error;
    end = b.graph().nodes.size();
  }
  return sum;
}

// Moves the teacher's layers, and what compares them with the student's, to where the student has come as far: behind
// the first node of its next layer. So each is used soon after it was made, and a cut of the student's layers
// cuts the teacher's with them.
void interleave(ir::Graph& graph, const std::vector<LayerPair>& pairs) {
  const ir::Uses uses(graph);
  const auto maker = [&](const ir::Value& value) { return ir::index(uses.producer[ir::index(value.id())]); };
  std::vector<bool> teachers(graph.nodes.size(), false), compares(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    teachers[n] = graph.value(graph.nodes[n].outputs.front()).name.starts_with(std::string(kTeacher) + ".");
  for (const LayerPair& pair : pairs)
    for (std::size_t n = pair.begin; n < pair.end; ++n) compares[n] = true;
  std::vector<ir::Node> order;
  std::vector<bool> done(graph.nodes.size(), false);
  const auto emit = [&](std::size_t n) {
    if (!done[n]) order.push_back(graph.nodes[n]);
    done[n] = true;
  };
  const auto emit_pair = [&](const LayerPair& pair) {
    for (std::size_t n = 0; n <= maker(pair.target); ++n)
      if (teachers[n]) emit(n);
    for (std::size_t n = pair.begin; n < pair.end; ++n) emit(n);
  };
  std::size_t next = 0;  // of the pairs
  bool student = true;   // until the teacher begins
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    student = student && !teachers[n];
    if (teachers[n] || compares[n]) continue;
    const std::size_t known = next;
    while (next < pairs.size() && maker(pairs[next].own) < n) ++next;
    if (student) emit(n);
    for (std::size_t p = known; p < next; ++p) emit_pair(pairs[p]);
    if (student) continue;
    for (std::size_t t = 0; t < n; ++t)
      if (teachers[t]) emit(t);
    emit(n);
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) emit(n);
  graph.nodes = std::move(order);
}

}  // namespace

ir::Value distilled_loss(const ir::Builder& b, const models::Batch& in, const Config& config,
                         const Registry& registry) {
  const models::ModelConfig theirs = teacher_model(config, registry);
  const DistilConfig& distil = config.distil;
  models::Batch rows = in;
  rows.targets = rows.labels = {};
  rows.predicting = true;
  const ir::Value targets = in.targets ? in.targets : in.labels;
  const ir::Value student = registry.models.at(config.model.family).build(b, rows, config.model);
  ir::Builder t = b.scope(kTeacher);
  t.training = false;
  const ir::Value teacher = registry.models.at(theirs.family).build(t, rows, theirs);
  for (ir::State& state : b.module().states)
    if (is_teacher(state)) state.trained = state.decayed = state.saved = false;

  const double per_row = static_cast<double>(targets.shape().elements()) / static_cast<double>(targets.shape()[0]);
  const double scale = 1 / (global_rows(b, targets) * per_row);
  const ir::Builder d = b.scope("distil");
  ir::Value loss = ir::apply1(
      "kl_divergence", {d.here(student), teacher},
      {{"scale", scale * distil.alpha * distil.temperature * distil.temperature}, {"temperature", distil.temperature}});
  if (distil.alpha < 1)
    loss = models::add(
        loss, ir::apply1("cross_entropy", {d.here(student), targets}, {{"scale", scale * (1 - distil.alpha)}}));
  std::vector<LayerPair> pairs = layer_pairs(b, in.tokens ? 3 : 2);
  if (distil.hidden > 0) loss = models::add(loss, hidden_loss(b, distil.hidden, pairs));
  interleave(b.graph(), pairs);
  return loss;
}

void load_teacher(const Config& config, const Registry& registry, Session& session) {
  const std::string& from = config.distil.teacher;
  const std::size_t prefix = std::string(kTeacher).size() + 1;
  const models::ModelConfig theirs = teacher_model(config, registry);
  const auto each = [&](const auto& read) {
    for (const auto& rank : session.ranks())
      for (const ir::State& state : rank->role().module.states)
        if (is_teacher(state))
          load_slice(*rank, state, [&](const ir::Slice& slice, std::span<std::byte> out) {
            read(state.name.substr(prefix), state, slice, out);
          });
  };
  if (is_huggingface_folder(from)) {
    const io::HfWeights weights(from, theirs);
    each([&](const std::string& name, const ir::State& state, const ir::Slice& slice, std::span<std::byte> out) {
      weights.read(name, state.global_shape(), slice,
                   {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
    });
  } else {
    const auto step = newest_checkpoint(from, {});
    if (!step) refuse("distil.teacher = \"{}\": the run has no checkpoint", from);
    const io::CheckpointReader reader(checkpoint_folder(from, *step));
    each([&](const std::string& name, const ir::State& state, const ir::Slice& slice, std::span<std::byte> out) {
      const io::CheckpointTensor& tensor = reader.at(name);
      if (tensor.type.shape != state.global_shape())
        refuse("distil.teacher = \"{}\": '{}' is {}, and its config.toml makes it {}", from, name, tensor.type.str(),
               state.global_shape().str());
      reader.read(tensor, slice, out);
    });
  }
  session.refresh_copies();
}

void check_distillation(const Config& config) {
  const DistilConfig& distil = config.distil;
  if (distil.teacher.empty()) {
    for (const char* key : {"distil.temperature", "distil.alpha", "distil.hidden"})
      if (config.is_given(key) && value_text(config, key) != value_text(Config{}, key))
        refuse("{} = {} belongs to distillation: name a run or a Hugging Face folder in distil.teacher", key,
               value_text(config, key));
  }
}

}  // namespace trireme::train
