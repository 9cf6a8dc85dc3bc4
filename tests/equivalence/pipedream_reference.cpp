#include "equivalence/pipedream_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

data::Batch some_rows(const data::Batch& batch, std::int64_t first, std::int64_t rows) {
  const auto cut = [&](const auto& from, auto& to) {
    const auto per_row = static_cast<std::int64_t>(from.size()) / batch.rows;
    to.assign(from.begin() + first * per_row, from.begin() + (first + rows) * per_row);
  };
  data::Batch part;
  part.step = batch.step;
  part.rows = rows;
  cut(batch.tokens, part.tokens);
  cut(batch.targets, part.targets);
  cut(batch.images, part.images);
  cut(batch.labels, part.labels);
  return part;
}

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Sums of shards are rounded to 16 bits before they are added: then the reference has the shards of the pipeline.
train::ParallelConfig shards_of(const train::Config& config) {
  train::ParallelConfig parallel;
  if (config.train.precision == train::Precision::f32) return parallel;
  std::string mesh;
  for (const ir::Mesh::Axis& axis : ir::parse_mesh(config.parallel.mesh).axes)
    if (axis.name != "pp" && axis.name != "dp")
      mesh += fmt::format("{}{}={}", mesh.empty() ? "" : ",", axis.name, axis.size);
  if (mesh.empty()) return parallel;
  parallel.mesh = mesh;
  parallel.sharding = config.parallel.sharding;
  parallel.sequence = config.parallel.sequence;
  parallel.allreduce = config.parallel.allreduce;
  return parallel;
}

// One rank without a pipeline, whose first moments after a step are the gradients.
train::Config gradients_of(train::Config config, std::int64_t rows, std::int64_t micro_rows) {
  config.parallel = shards_of(config);
  config.memory = {};
  config.prune = {};
  config.train.batch = rows;
  config.train.micro_batch = micro_rows;
  config.train.optimizer = "adamw";
  config.train.betas = {0.0, 0.5};
  config.train.clip = 0;
  return config;
}

}  // namespace

PipedreamReference::PipedreamReference(const train::Config& config, std::vector<std::int64_t> ahead)
    : config_(config),
      each_(!ahead.empty() || config.parallel.pipeline.text() == "pipedream"),
      ahead_(std::move(ahead)) {
  const train::Registry registry;
  const train::Compiled piped = train::compile(config, registry, {});
  micro_batches_ = piped.micro_batches;
  micro_rows_ = piped.micro_rows;
  stages_.resize(static_cast<std::size_t>(piped.plan.stages()));
  const auto last = static_cast<std::int64_t>(stages_.size()) - 1;
  for (std::int64_t i = 0; i <= last && std::ssize(ahead_) <= last; ++i)
    ahead_.push_back(std::min<std::int64_t>(last - i, micro_batches_ - 1));
  for (const train::Role& role : piped.roles) {
    Stage& stage = stages_[static_cast<std::size_t>(role.places.at("pp"))];
    if (!stage.parameters.empty()) continue;  // at other places along h and w
    for (const ir::State& state : role.module.states) {
      if (!state.trained) continue;
      stage.parameters.push_back(state.name);
      decayed_[state.name] = state.decayed;
    }
  }
  plain_ = std::make_unique<Trained>(gradients_of(config, each_ ? micro_rows_ : config.train.batch, micro_rows_));
  for (const auto& [name, decayed] : decayed_) {
    weights_[name] = floats(plain_->session().state(name));
    first_moments_[name].resize(weights_[name].size());
    second_moments_[name].resize(weights_[name].size());
  }
}

PipedreamReference::Tensors PipedreamReference::statistics() const {
  Tensors found;
  for (const auto& [name, values] : plain_->state())
    if (!decayed_.contains(name) && name.find('/') == std::string::npos) found[name] = values;
  return found;
}

double PipedreamReference::differentiate(const Tensors& weights, std::int64_t step, std::int64_t first_row,
                                         std::int64_t rows, Tensors& gradients) {
  train::Session& session = plain_->session();
  for (const auto& [name, values] : weights) session.write_state(name, 0, std::as_bytes(std::span(values)));
  session.refresh_copies();
  const train::StepResult result =
      session.step(some_rows(batch_of(config_, step), first_row, rows), step, 0.0, config_.train.seed);
  for (const auto& [name, values] : weights) gradients[name] = floats(session.state(name + "/m"));
  return static_cast<double>(result.loss);
}

void PipedreamReference::mask(const std::string& name, std::size_t i, std::initializer_list<float*> all) const {
  if (const auto masks = masks_.find(name); masks != masks_.end())
    for (float* x : all) *x *= masks->second[i];
}

void PipedreamReference::update(Stage& stage, const Tensors& gradients, std::int64_t step, std::int64_t number) {
  const auto& [beta1, beta2] = std::pair(config_.train.betas[0], config_.train.betas[1]);
  const double lr = train::learning_rate(config_.train, step);
  double squares = 0;
  for (const std::string& name : stage.parameters)
    for (const float g : gradients.at(name)) squares += static_cast<double>(g) * static_cast<double>(g);
  const double clip = config_.train.clip > 0 ? std::min(1.0, config_.train.clip / (std::sqrt(squares) + 1e-6)) : 1.0;
  const bool adamw = config_.train.optimizer == train::Optimizer::adamw;
  Tensors next = stage.versions.back();
  const auto updates = static_cast<double>(number);
  for (const std::string& name : stage.parameters)
    for (std::size_t i = 0; i < next[name].size(); ++i) {
      const double g = clip * static_cast<double>(gradients.at(name)[i]);
      float& m = first_moments_[name][i];
      float& v = second_moments_[name][i];
      const double decay = decayed_.at(name) ? config_.train.weight_decay : 0.0;
      const auto w = static_cast<double>(next[name][i]);
      if (!adamw) {
        m = static_cast<float>(config_.train.momentum * static_cast<double>(m) + g);
        next[name][i] = static_cast<float>(w * (1 - lr * decay) - lr * static_cast<double>(m));
        mask(name, i, {&m, &next[name][i]});
        continue;
      }
      m = static_cast<float>(beta1 * static_cast<double>(m) + (1 - beta1) * g);
      v = static_cast<float>(beta2 * static_cast<double>(v) + (1 - beta2) * g * g);
      const double m_hat = static_cast<double>(m) / (1 - std::pow(beta1, updates));
      const double v_hat = static_cast<double>(v) / (1 - std::pow(beta2, updates));
      next[name][i] = static_cast<float>(w - lr * (m_hat / (std::sqrt(v_hat) + config_.train.eps) + decay * w));
      mask(name, i, {&m, &v, &next[name][i]});
    }
  stage.versions.push_back(std::move(next));
}

void PipedreamReference::train(std::int64_t steps) {
  for (Stage& stage : stages_) {
    stage.versions.assign(1, {});
    for (const std::string& name : stage.parameters) stage.versions.front()[name] = weights_[name];
  }
  const auto start = static_cast<std::int64_t>(losses_.size());
  const auto last = static_cast<std::int64_t>(stages_.size()) - 1;
  // The update that follows from what every stage reads of its versions.
  const auto learn = [&](const auto& version_of, std::int64_t step, std::int64_t first_row, std::int64_t rows,
                         std::int64_t number) {
    Tensors weights;
    for (std::int64_t i = 0; i <= last; ++i) {
      const Stage& stage = stages_[static_cast<std::size_t>(i)];
      const Tensors& read = stage.versions[static_cast<std::size_t>(std::max<std::int64_t>(0, version_of(i)))];
      weights.insert(read.begin(), read.end());
    }
    Tensors gradients;
    const double loss = differentiate(weights, step, first_row, rows, gradients);
    double squares = 0;
    for (const auto& [name, values] : gradients)
      for (const float g : values) squares += static_cast<double>(g) * static_cast<double>(g);
    grad_norm_ = std::sqrt(squares);
    for (Stage& stage : stages_) update(stage, gradients, step, number);
    return loss;
  };
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int64_t step = start + s;
    double loss = 0;
    if (each_)
      for (std::int64_t k = 0; k < micro_batches_; ++k) {
        const std::int64_t n = s * micro_batches_ + k;
        const auto version = [&](std::int64_t i) { return n - ahead_[static_cast<std::size_t>(i)]; };
        loss += learn(version, step, k * micro_rows_, micro_rows_, step * micro_batches_ + k + 1) / micro_batches_;
      }
    else
      loss = learn([&](std::int64_t) { return s - 1; }, step, 0, config_.train.batch, step + 1);
    losses_.push_back(loss);
  }
  for (const Stage& stage : stages_)
    for (const auto& [name, values] : stage.versions.back()) weights_[name] = values;
}

}  // namespace trireme::testing
