#include "trireme/train/trainer.h"

#include <trireme/trainer.h>

#include <ostream>

#include "trireme/api/access.h"
#include "trireme/api/settings.h"
#include "trireme/cli/report.h"
#include "trireme/core/error.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/train/sample_text.h"

namespace trireme {

struct Trainer::Impl {
  train::Registry registry;
  std::function<Next(const Metrics&)> callback;
  Metrics last;
  std::unique_ptr<train::Trainer> trainer;
  bool started = false;

  Impl(train::Registry r, const ModelConfig& model, const Data& data, const TrainOptions& options, const Plan& plan)
      : registry(std::move(r)) {
    train::TrainerOptions o;
    o.mode = options.resume ? train::RunMode::resume : train::RunMode::fresh;
    o.write = !options.dir.empty();
    o.log = options.log;
    o.request = [this](const Metrics& m) {
      return callback && callback(m) == Next::stop ? train::Request::stop : train::Request::none;
    };
    o.on_step = [this](const Metrics& m) { last = m; };
    trainer = std::make_unique<train::Trainer>(settings(model, data, options, plan, registry.models), registry, o);
  }

  // Memory is taken and files are written only now.
  train::Trainer& ready() {
    if (!started) trainer->start();
    started = true;
    return *trainer;
  }
};

namespace {

train::Registry with(const std::string& name, Model model, Data::Kind kind) {
  if (!model) refuse("the model is empty");
  train::Registry registry;
  registry.models.add(adapt(
      name, [model = std::move(model)](const ModelConfig&) { return model; },
      kind == Data::Kind::images ? Reads::images : Reads::tokens));
  return registry;
}

}  // namespace

Trainer::Trainer(Model model, const Data& data, const TrainOptions& options, const Plan& plan) {
  ModelConfig config;
  config.family = options.name;
  impl_ = std::make_unique<Impl>(with(options.name, std::move(model), data.kind), config, data, options, plan);
}

Trainer::Trainer(const ModelConfig& model, const Data& data, const TrainOptions& options, const Plan& plan,
                 const Registry& registry)
    : impl_(std::make_unique<Impl>(Access::unwrap(registry), model, data, options, plan)) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&& other) noexcept = default;
Trainer& Trainer::operator=(Trainer&& other) noexcept = default;

MemoryReport Trainer::memory() const {
  const train::Compiled& compiled = impl_->trainer->compiled();
  const program::PeakReport peak = program::peak(compiled.roles.front().largest());
  MemoryReport::Rank rank{.peak_bytes = peak.bytes, .padding = peak.padding};
  for (int c = 0; c < program::kCategories; ++c)
    rank.categories[program::name_of(static_cast<program::Category>(c))] = peak.categories[static_cast<std::size_t>(c)];
  return {{rank}, compiled.parameters(), cli::memory_text(compiled, impl_->trainer->planned().choice)};
}

std::uint64_t Trainer::parameters() const { return impl_->trainer->compiled().parameters(); }

void Trainer::on_step(std::function<Next(const Metrics&)> callback) { impl_->callback = std::move(callback); }

Metrics Trainer::run() {
  const train::Outcome outcome = impl_->ready().run();
  impl_->last.step = outcome.steps;
  if (outcome.losses.empty()) impl_->last.eval_loss = outcome.eval_loss;
  return impl_->last;
}

std::optional<double> Trainer::evaluate(std::int64_t batches) { return impl_->ready().evaluate(batches); }

void Trainer::save(const std::string& folder) { impl_->ready().save(folder); }

void Trainer::load(const std::string& folder) {
  if (!impl_->ready().load(folder)) refuse("there is no checkpoint in {}", folder);
}

std::vector<std::int32_t> Trainer::generate_tokens(const std::vector<std::int32_t>& prompt, const SampleOptions& o) {
  return train::sample_tokens(impl_->ready().session(), prompt,
                              {.tokens = o.tokens,
                               .sampling = {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p},
                               .seed = o.seed});
}

std::string Trainer::generate(const std::string& prompt, const SampleOptions& options) {
  const auto& tokenizer = impl_->trainer->data().tokenizer;
  if (!tokenizer) refuse("this model was not trained on text: use generate_tokens");
  return tokenizer->decode(generate_tokens(tokenizer->encode(prompt, data::Specials::add), options),
                           data::Specials::none);
}

std::vector<float> Trainer::values(const std::string& name) {
  train::Session& session = impl_->ready().session();
  const std::vector<std::byte> bytes = session.state(name);
  const ir::Module& module = session.compiled().roles.front().module;
  const TensorType& type = module.state(module.find_state(name)).type;
  if (type.dtype != DType::f32) refuse("'{}' is {}, not f32", name, type.str());
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) { return out << report.text; }

}  // namespace trireme
