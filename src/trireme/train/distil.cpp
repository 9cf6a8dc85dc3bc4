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
  const models::ModelConfig& own = config.model;
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

// The student's layers, each through a projection of its own, against the teacher's that are as far along.
ir::Value hidden_loss(const ir::Builder& b, double weight, int rank) {
  const std::vector<ir::Value> own = layer_outputs(b, "", rank);
  const std::vector<ir::Value> theirs = layer_outputs(b, std::string(kTeacher) + ".", rank);
  if (own.empty() || theirs.empty()) refuse("distil.hidden = {}: the models have no blocks to compare", weight);
  ir::Value sum;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const ir::Value& target = theirs[std::max<std::size_t>(1, (i + 1) * theirs.size() / own.size()) - 1];
    const std::int64_t width = target.shape().back();
    const ir::Builder k = b.scope("distil").scope("blocks", static_cast<int>(i));
    const double deviation = std::sqrt(1.0 / static_cast<double>(own[i].shape().back()));
    const ir::Value projected = models::linear(k, own[i], {width}, {.bias = false, .deviation = deviation});
    const double per_row = static_cast<double>(target.shape().elements()) / static_cast<double>(target.shape()[0]);
    const double scale = weight / (global_rows(b, target) * per_row * static_cast<double>(own.size()));
    const ir::Value error = ir::apply1("squared_error", {k.here(projected), target}, {{"scale", scale}});
    sum = sum ? models::add(sum, error) : error;
  }
  return sum;
}

}  // namespace

ir::Value distilled_loss(const ir::Builder& b, const models::Batch& in, const Config& config,
                         const Registry& registry) {
  const models::ModelConfig theirs = teacher_model(config, registry);
  const DistilConfig& distil = config.distil;
  models::Batch rows = in;
  rows.targets = rows.labels = {};
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
  if (distil.hidden > 0) loss = models::add(loss, hidden_loss(b, distil.hidden, in.tokens ? 3 : 2));
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
    return;
  }
  const std::string given = fmt::format("distil.teacher = \"{}\"", distil.teacher);
  // The teacher is on the last stage, with the loss that compares it with the student.
  if (distil.hidden > 0 && config.parallel.mesh.find("pp=") != std::string::npos && mesh_of(config).size_of("pp") > 1)
    refuse(
        "distil.hidden = {} compares every layer of the student with one of {}, which one stage has: parallel.mesh = "
        "\"{}\" would have nothing to cut between; the nearest is distil.hidden = 0",
        distil.hidden, given, config.parallel.mesh);
}

}  // namespace trireme::train
