#include "equivalence/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/data/synthetic_images.h"
#include "trireme/train/distil.h"
#include "trireme/train/schedule.h"

namespace trireme::testing {
namespace {

// Every token follows from the one before it, except for a wrong one now and then.
void fill_tokens(const models::ModelConfig& model, std::int64_t step, data::Batch& batch) {
  SplitMix random(static_cast<std::uint64_t>(step) + 17);
  const auto any = [&] { return static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(model.vocab)); };
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    std::int64_t token = any();
    for (std::int64_t i = 0; i <= model.context; ++i) {
      if (i < model.context) batch.tokens.push_back(static_cast<std::int32_t>(token));
      if (i > 0) batch.targets.push_back(static_cast<std::int32_t>(token));
      token = random.unit() < 0.1 ? any() : (3 * token + 7) % model.vocab;
    }
  }
}

double relative_norm_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]);
    const double d = x - static_cast<double>(b[i]);
    difference += d * d;
    norm += x * x;
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace

const std::vector<std::string>& small_models() {
  static const std::vector<std::string> all = {"gpt2", "llama", "mlp", "convnet", "resnet18", "resnet50"};
  return all;
}

train::Config wider_model(const std::string& name) {
  train::Config config = small_model(name);
  if (reads_images(config)) {
    config.model.width = name == "mlp" ? 320 : 16;
    config.model.image = 40;
    config.train.batch = 16;
  } else {
    config.model.width = 128;
    config.model.ffn = 512;
    config.model.context = 48;
    config.model.vocab = 2501;
    config.model.layers = 3;
  }
  config.model.dropout = 0.1;
  return config;
}

bool reads_images(const train::Config& config) { return models::builtin_families().at(config.model.family).images; }

train::Config small_model(const std::string& name) {
  train::Config c;
  const bool resnet = name.starts_with("resnet");
  c.model.family = resnet ? "resnet" : name;
  c.train.batch = 8;
  c.train.eps = 1e-4;
  c.train.warmup = 0;
  c.train.schedule = "constant";
  if (reads_images(c)) {
    c.data.images = "synthetic";
    c.model.layers = resnet ? std::stoll(name.substr(6)) : 2;
    c.model.width = name == "mlp" ? 24 : 4;
    c.model.image = resnet ? 20 : 11;
    c.model.classes = 5;
  } else {
    c.model.layers = 2;
    c.model.width = 24;
    c.model.heads = 4;
    c.model.kv_heads = name == "llama" ? 2 : 0;
    c.model.context = 19;
    c.model.vocab = 61;
  }
  train::check(c);
  train::resolve_model(c, c.model.vocab);
  return c;
}

data::Batch batch_of(const train::Config& c, std::int64_t step) {
  data::Batch batch;
  batch.step = step;
  batch.rows = c.train.batch;
  if (!reads_images(c)) {
    fill_tokens(c.model, step, batch);
    return batch;
  }
  const data::SyntheticImages images(c.model.image, c.model.channels, c.model.classes, 0,
                                     data::SyntheticImages::kSamples);
  images.resize(batch, batch.rows);
  for (std::int64_t row = 0; row < batch.rows; ++row) images.read(step * batch.rows + row, row, batch);
  return batch;
}

train::Config over_mesh(train::Config config, const std::string& mesh, int zero) {
  config.parallel.mesh = mesh;
  config.parallel.zero = zero;
  // The same micro-batches, each replica with its share of the rows.
  if (config.train.micro_batch != 0) config.train.micro_batch /= ir::parse_mesh(mesh).size_of("dp");
  train::check(config);
  return config;
}

train::Config over_ranks(train::Config config, int ranks, int zero) {
  return over_mesh(std::move(config), fmt::format("dp={}", ranks), zero);
}

namespace {

train::Compiled compiled(const train::Config& config, const train::Registry& registry, const Setup& setup) {
  train::Compiled c =
      train::compile(config, registry,
                     {.threads = setup.threads,
                      .transport = setup.world == nullptr ? comm::TransportKind::threads : comm::TransportKind::mpi,
                      .disabled_passes = setup.disabled_passes});
  if (setup.rework) setup.rework(c);
  return c;
}

std::string link_of(const Setup& setup, const train::Compiled& compiled) {
  return setup.link.empty() && compiled.plan.stages() > 1 && setup.world == nullptr ? kWaitingSends : setup.link;
}

}  // namespace

Trained::Trained(const train::Config& config, const Setup& setup)
    : config_(config),
      batch_(setup.batch ? setup.batch : batch_of),
      registry_(setup.registry),
      compiled_(testing::compiled(config_, registry_, setup)),
      session_(
          std::make_unique<train::Session>(compiled_, train::SessionOptions{.world = setup.world,
                                                                            .threads = setup.threads,
                                                                            .allreduce = train::algorithm_of(config),
                                                                            .link = link_of(setup, compiled_)})) {
  session_->initialize(config_.train.seed);
  if (!config_.distil.teacher.empty()) train::load_teacher(config_, registry_, *session_);
}

// Those of an asynchronous pipeline together, which is empty before and after them.
void Trained::run(std::int64_t steps) {
  std::vector<std::deque<data::Batch>> batches(session_->ranks().size());  // which stay where they are
  session_->run({.first = static_cast<std::int64_t>(losses_.size()),
                 .count = steps,
                 .seed = config_.train.seed,
                 .lr = [&](std::int64_t step) { return train::learning_rate(config_.train, step); },
                 .batch = [&](std::size_t rank, std::int64_t step) -> const data::Batch& {
                   return batches[rank].emplace_back(batch_(config_, step));
                 },
                 .done =
                     [&](std::size_t rank, std::int64_t, const train::StepResult& result) {
                       if (rank != 0) return;
                       EXPECT_TRUE(result.finite) << "step " << losses_.size();
                       losses_.push_back(static_cast<double>(result.loss));
                     }});
}

void Trained::train(std::int64_t steps) {
  if (compiled_.asynchronous_pipeline()) return run(steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    const train::StepResult result = step();
    ASSERT_TRUE(result.finite) << "step " << losses_.size() - 1;
  }
}

train::StepResult Trained::step() {
  const auto step = static_cast<std::int64_t>(losses_.size());
  const train::StepResult result =
      session_->step(batch_(config_, step), step, train::learning_rate(config_, step), config_.train.seed);
  losses_.push_back(static_cast<double>(result.loss));
  return result;
}

std::map<std::string, std::vector<float>> Trained::state() {
  std::map<std::string, std::vector<float>> all;
  for (const ir::State& state : compiled_.saved_states()) {
    TRI_CHECK(state.type.dtype == DType::f32, "{} is {}", state.name, state.type.str());
    const auto bytes = session_->state(state.name);
    std::vector<float>& values = all[state.name];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return all;
}

void expect_equal_training(Trained& a, Trained& b, double tolerance) {
  ASSERT_EQ(a.losses().size(), b.losses().size());
  ASSERT_FALSE(a.losses().empty()) << "nothing was trained, and nothing compared";
  for (std::size_t i = 0; i < a.losses().size(); ++i)
    EXPECT_NEAR(a.losses()[i], b.losses()[i], tolerance * std::abs(a.losses()[i])) << "loss of step " << i;
  const auto theirs = b.state();
  for (const auto& [name, values] : a.state()) {
    if (name.find('/') != std::string::npos) continue;  // the optimizer's: judged by the weights they make
    ASSERT_TRUE(theirs.contains(name)) << name;
    EXPECT_LE(relative_norm_error(values, theirs.at(name)), tolerance) << name;
  }
}

std::int64_t steps_asked(std::int64_t few) {
  const char* asked = std::getenv("TRIREME_STEPS");
  return asked == nullptr ? few : std::atoll(asked);
}

namespace {

// Of what has run: a model that is mostly workspace may take more where it evaluates.
std::size_t planned_for_training(const train::Compiled& compiled) {
  std::vector<std::string> ran = compiled.step_programs();
  ran.emplace_back("init");
  std::size_t peak = 0;
  for (const compiler::Role& role : compiled.roles)
    for (const std::string& name : ran)
      if (const program::Program* p = role.find(name)) peak = std::max(peak, p->arena_bytes);
  return peak;
}

}  // namespace

void expect_like_one_rank(const train::Config& plain, const train::Config& parallel, const LikeOneRank& how) {
  Trained one(plain, how.setup);
  Trained many(parallel, how.setup);
  one.train(how.steps);
  many.train(how.steps);
  expect_equal_training(one, many, how.tolerance);
  EXPECT_EQ(many.session().highest_offset(), planned_for_training(many.compiled()));
}

void expect_equal_updates(const std::map<std::string, std::vector<float>>& before, Trained& a, Trained& b,
                          double tolerance) {
  const auto distance = [](const std::vector<float>& x, const std::vector<float>& y) {
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      squares += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2.0);
    return std::sqrt(squares);
  };
  const auto theirs = b.state();
  for (const auto& [name, values] : a.state()) {
    const double moved = distance(values, before.at(name));
    EXPECT_GT(moved, 0) << name << " was not updated";
    EXPECT_LE(distance(values, theirs.at(name)), tolerance * moved) << name;
  }
}

void expect_same_state(Trained& a, Trained& b) {
  const auto theirs = b.state();
  for (const auto& [name, values] : a.state()) EXPECT_TRUE(values == theirs.at(name)) << name << " differs";
}

void expect_same_bits(Trained& a, Trained& b) {
  EXPECT_EQ(a.losses(), b.losses());
  expect_same_state(a, b);
}

}  // namespace trireme::testing
