#include "trireme/train/trainer.h"

#include <trireme/trainer.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <span>

#include "trireme/api/access.h"
#include "trireme/api/own_data.h"
#include "trireme/api/own_inputs.h"
#include "trireme/api/settings.h"
#include "trireme/cli/report.h"
#include "trireme/core/aside.h"
#include "trireme/core/error.h"
#include "trireme/core/flag_scope.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/tokenizer.h"
#include "trireme/ir/axes.h"
#include "trireme/passes/propagate.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/convert.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/input_read.h"
#include "trireme/train/sample_text.h"

namespace trireme {
namespace {

std::string family_of(const ModelConfig& model) { return model.family; }
std::string family_of(const Pretrained& model) { return model.folder; }

// Lets the model read the inputs that the data name.
void name_inputs(models::Families& families, const std::string& family, const Data& data, const Plan& plan) {
  if (families.find(family) == nullptr || models::builtin_families().find(family) != nullptr)
    refuse("\"{}\" reads tokens or images, and the data have inputs by names of their own", family);
  const std::vector<models::Input> inputs = inputs_of(data);
  for (const auto& [pattern, sharding] : plan.sharding)
    for (const models::Input& input : inputs)
      if (input.whole && passes::matches_pattern(pattern, input.name))
        refuse(
            "parallel.sharding: \"{}\" = \"{}\" is an annotation of the input '{}', of which every rank has all; leave "
            "it out, or read "
            "the input by rows (whole = false)",
            pattern, sharding, input.name);
  // Which of them h and w shard only the user knows.
  for (const auto& [axis, dimension] : {std::pair{ir::kHeightAxis, "height"}, std::pair{ir::kWidthAxis, "width"}}) {
    const std::string over = fmt::format(":{}", axis);
    const auto axes = train::parse_mesh_axes(plan.mesh);
    const bool has = axes && std::any_of(axes->begin(), axes->end(), [&, over_axis = axis](const auto& a) {
                       return a.first == over_axis && a.second > 1;
                     });
    const bool given = std::any_of(plan.sharding.begin(), plan.sharding.end(),
                                   [&](const auto& a) { return a.second.find(over) != std::string::npos; });
    if (has && !given)
      refuse("parallel.mesh = \"{}\": say which input is sharded over {}: parallel.sharding, \"{}\" = \"{}{}\"",
             plan.mesh, axis, inputs.empty() ? "photo" : inputs.front().name, dimension, over);
  }
  families.set_inputs(family, inputs);
}

// Inputs that no rank reads.
std::vector<std::string> unread(const train::Trainer& trainer) {
  std::vector<std::string> names;
  for (const models::Input& input : trainer.model().inputs)
    if (!train::input_read(trainer.compiled(), "micro", input.name)) names.push_back(input.name);
  return names;
}

}  // namespace

struct Trainer::Impl {
  train::Registry registry;
  std::function<Next(const Metrics&)> callback;
  Metrics last;
  std::unique_ptr<train::Trainer> trainer;
  bool started = false;
  std::int64_t seen = 0;      // the last step that the callback was given
  std::exception_ptr thrown;  // by it
  bool in_callback = false;

  template <class M>
  Impl(train::Registry r, const M& model, const Data& data, const TrainOptions& options, const Plan& plan)
      : registry(std::move(r)) {
    train::TrainerOptions o;
    o.mode = options.resume ? train::RunMode::resume : train::RunMode::fresh;
    o.write = !options.dir.empty();
    o.log = options.log;
    if (data.own) o.data = open_own(data);
    if (data.kind == Data::Kind::inputs) name_inputs(registry.models, family_of(model), data, plan);
    // Asked more often than there are steps, where ranks go at their own pace.
    o.request = [this](const Metrics& m) {
      if (m.step <= seen || !callback) return train::Request::none;
      seen = m.step;
      const FlagScope within(in_callback);
      try {
        return callback(m) == Next::stop ? train::Request::stop : train::Request::none;
      } catch (...) {
        // Ranks at their own pace come together before it leaves run().
        if (!trainer->at_own_pace()) throw;
        thrown = std::current_exception();
        return train::Request::stop;
      }
    };
    o.on_step = [this](const Metrics& m) { last = m; };
    trainer = std::make_unique<train::Trainer>(settings(model, data, options, plan, registry.models), registry, o);
    for (const std::string& name : unread(*trainer))
      log(options.log, LogLevel::warning, "the model does not read the input '{}'", name);
  }

  // Memory is taken and files are written only now.
  train::Trainer& ready() {
    if (trainer->at_own_pace())
      refuse(
          "not within on_step where ranks go at their own pace (pipelines pipedream and pipedream-2bw, servers async "
          "and "
          "ssp): return Next::stop, and call it when run() has ended");
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

Trainer::Trainer(const Pretrained& model, const Data& data, const TrainOptions& options, const Plan& plan)
    : impl_(std::make_unique<Impl>(train::Registry(), model, data, options, plan)) {}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&& other) noexcept = default;
Trainer& Trainer::operator=(Trainer&& other) noexcept = default;

MemoryReport Trainer::memory() const {
  const train::Compiled& compiled = impl_->trainer->compiled();
  const auto of = [](const train::Role& role) {
    const program::PeakReport peak = program::peak(role.largest());
    MemoryReport::Rank rank{.peak_bytes = peak.bytes, .padding = peak.padding, .server = !role.takes_rows()};
    for (int c = 0; c < program::kCategories; ++c)
      rank.categories[program::name_of(static_cast<program::Category>(c))] =
          peak.categories[static_cast<std::size_t>(c)];
    return rank;
  };
  MemoryReport report{{}, compiled.parameters(), cli::memory_text(*impl_->trainer)};
  for (int r = 0; r < compiled.ranks(); ++r) report.ranks.push_back(of(compiled.role_of(r)));
  return report;
}

std::uint64_t Trainer::parameters() const { return impl_->trainer->compiled().parameters(); }

void Trainer::on_step(std::function<Next(const Metrics&)> callback) { impl_->callback = std::move(callback); }

Metrics Trainer::run() {
  const train::Outcome outcome = impl_->ready().run();
  if (impl_->thrown) std::rethrow_exception(std::exchange(impl_->thrown, nullptr));
  impl_->last.step = outcome.steps;
  if (outcome.losses.empty() && outcome.evaluation) {
    impl_->last.eval_loss = outcome.evaluation->loss;
    impl_->last.eval_accuracy = outcome.evaluation->accuracy;
    impl_->last.eval_samples = outcome.evaluation->samples;
    impl_->last.held_out_samples = outcome.evaluation->available;
  }
  return impl_->last;
}

std::optional<double> Trainer::evaluate(std::int64_t batches) {
  const std::optional<train::Evaluation> evaluation = impl_->ready().evaluate(batches);
  if (!evaluation) return std::nullopt;
  train::require_good_inputs(*evaluation);
  return evaluation->loss;
}

void Trainer::save(const std::string& folder) { impl_->ready().save(folder); }

void Trainer::load(const std::string& folder) {
  if (impl_->in_callback)
    refuse(
        "load within on_step: the batches of other steps are on their way; return Next::stop, load when run() has "
        "ended, and run again");
  if (!impl_->ready().load(folder)) refuse("there is no checkpoint in {}", folder);
  impl_->seen = 0;  // the callback is given what follows, which may be steps that it has had before
}

std::vector<std::int32_t> Trainer::generate_tokens(const std::vector<std::int32_t>& prompt, const SampleOptions& o) {
  if (o.tokens < 0) refuse("generate: tokens = {} must be at least 0", o.tokens);
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

namespace {

void check_unnamed(const models::Model& model) {
  if (!model.inputs.empty())
    refuse("this model reads inputs by names of their own, such as '{}'; see forward_inputs",
           model.inputs.front().name);
}

// Refuses one that is not finite for a value of the row that is not. An input may well be infinite, as masks are, where
// the prediction is finite; a model that has gone bad by itself predicts what it does.
std::vector<float> prediction(const train::Trainer& trainer, std::span<const float> predicted, const data::Batch& row,
                              const char* function) {
  if (!std::all_of(predicted.begin(), predicted.end(), [](float value) { return std::isfinite(value); }))
    if (const auto bad = train::find_bad_input(trainer.compiled(), "predict", row))
      refuse("{}: the prediction is not finite: input '{}', element {} is {}", function, bad->input, bad->element,
             bad->what);
  return {predicted.begin(), predicted.end()};
}

}  // namespace

std::vector<float> Trainer::forward(const std::vector<std::int32_t>& tokens) {
  train::Trainer& trainer = impl_->ready();
  const ModelConfig& model = trainer.config().model;
  if (trainer.model().images) refuse("forward takes tokens, and this model reads images; see forward_image");
  check_unnamed(trainer.model());
  if (std::ssize(tokens) != model.context)
    refuse("forward takes the {} tokens of a sequence, got {}", model.context, tokens.size());
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= model.vocab) refuse("token {} is not from 0 to below {}", token, model.vocab);
  const std::span<const float> logits = trainer.session().predict(tokens);
  return {logits.begin(), logits.end()};
}

std::vector<float> Trainer::forward_image(const std::vector<float>& pixels) {
  train::Trainer& trainer = impl_->ready();
  const ModelConfig& model = trainer.config().model;
  check_unnamed(trainer.model());
  if (!trainer.model().images) refuse("forward_image takes pixels, and this model reads tokens; see forward");
  if (const std::int64_t all = model.image * model.image * model.channels; std::ssize(pixels) != all)
    refuse("forward_image takes {}×{} pixels of {} channels, which are {} numbers, got {}", model.image, model.image,
           model.channels, all, pixels.size());
  data::Batch row;
  row.rows = 1;
  row.images.assign(pixels.begin(), pixels.end());
  return prediction(trainer, trainer.session().predict(pixels), row, "forward_image");
}

std::vector<float> Trainer::forward_inputs(const NamedInputs& inputs) {
  train::Trainer& trainer = impl_->ready();
  if (trainer.model().inputs.empty())
    refuse("forward_inputs is for data that name their inputs (own_inputs), and this model reads {}",
           trainer.model().images ? "images; see forward_image" : "tokens; see forward");
  const auto is_read = [&](const std::string& name) {
    return train::input_read(trainer.compiled(), "predict", name).has_value();
  };
  const data::Batch row = one_row(trainer.model().inputs, inputs, is_read);
  // A kernel's error would end the session.
  const train::IndexRanges ranges = train::index_ranges(trainer.compiled(), "predict");
  for (const std::int64_t which : {std::int64_t{0}, train::kWholeInputs})
    if (const std::string wrong = train::wrong_index(ranges, row, which); !wrong.empty())
      refuse("forward_inputs: {}", wrong);
  return prediction(trainer, trainer.session().predict(row), row, "forward_inputs");
}

std::vector<Parameter> Trainer::parameter_list() const {
  std::vector<Parameter> all;
  for (const ir::State& state : impl_->trainer->compiled().saved_states())
    if (state.trained) {
      const Shape shape = state.global_shape();
      all.push_back({state.name, {shape.begin(), shape.end()}});
    }
  return all;
}

namespace {

// The f32 state of that name. Refuses, with the nearest, what is not there.
const ir::State& find_state(const std::vector<ir::State>& states, const std::string& name) {
  std::vector<std::string> names;
  for (const ir::State& state : states) {
    if (state.name != name) {
      names.push_back(state.name);
      continue;
    }
    if (state.type.dtype != DType::f32) refuse("'{}' is {}, not f32", name, state.type.str());
    return state;
  }
  const auto near = nearest(name, names);
  refuse("there is no parameter '{}'{}", name, near ? "; did you mean '" + *near + "'?" : "");
}

}  // namespace

std::vector<float> Trainer::values(const std::string& name) {
  train::Session& session = impl_->ready().session();
  const std::vector<ir::State> states = session.compiled().saved_states();
  find_state(states, name);
  const std::vector<std::byte> bytes = session.state(name);
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

void Trainer::set_values(const std::string& name, const std::vector<float>& values) {
  train::Session& session = impl_->ready().session();
  const std::vector<ir::State> states = session.compiled().saved_states();
  const Shape shape = find_state(states, name).global_shape();
  if (std::ssize(values) != shape.elements())
    refuse("'{}' has {} values ({}), got {}", name, shape.elements(), shape.str(), values.size());
  session.write_state(name, 0, std::as_bytes(std::span(values)));
  session.refresh_copies();
}

void Trainer::export_huggingface(const std::string& folder, const std::string& dtype) {
  const auto type = parse_dtype(dtype);
  if (!type || (*type != DType::f32 && *type != DType::bf16 && *type != DType::f16))
    refuse("dtype \"{}\": expected f32, bf16 or f16", dtype);
  if (std::filesystem::exists(folder)) refuse("{} is there already", folder);
  // By way of a run folder, which is what an export reads.
  std::filesystem::path target = std::filesystem::path(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  constexpr const char* kRun = "run";
  remove_abandoned_folders(target.string(), kRun);
  struct Aside {
    std::filesystem::path path;
    ~Aside() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const aside{make_aside_folder(target.string(), kRun)};
  save(aside.path.string());
  train::export_huggingface(aside.path, target, {.dtype = *type}, impl_->registry.models);
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) { return out << report.text; }

}  // namespace trireme
