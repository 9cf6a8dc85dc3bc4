#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "trireme/cli/commands.h"
#include "trireme/cli/output.h"
#include "trireme/cli/processes.h"
#include "trireme/cli/progress.h"
#include "trireme/cli/training_settings.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/config/keys.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/open_data.h"
#include "trireme/train/same_run.h"
#include "trireme/train/trained_model.h"

namespace trireme::cli {
namespace {

// Rows have nothing to do with each other here; a few at a time keep the cores busy.
constexpr std::int64_t kRows = 8;

struct EvalArguments {
  std::string config;
  std::string from;
  std::optional<std::int64_t> step;
  std::int64_t batches = 0;
  bool json = false;
};

// The model of `from` with the data of the configuration. Sizes that both give must agree.
train::Config combined(const EvalArguments& a, const Context& context) {
  std::vector<std::string> settings = settings_of_use(context, "eval");
  // What says how the model is stored and which ranks use it is about the model; the rest may be the data's.
  const auto about_model = [](const std::string& s) { return s.starts_with("parallel.") || s.starts_with("memory."); };
  const auto of_model = std::stable_partition(settings.begin(), settings.end(), std::not_fn(about_model));
  train::Config config =
      load_for_use(context, a.from, {of_model, settings.end()}, train::Purpose::evaluate, launched_processes());
  settings.erase(of_model, settings.end());
  const train::Config data =
      train::load_config(a.config.empty() ? a.from : a.config, settings, context.registry->models);
  for (const std::string& key : train::differing_keys(config, data))
    if (key.starts_with("model.") && data.is_given(key) && key != "model.context")
      refuse("{} = {} in {}, but {} has {}", key, train::value_text(data, key),
             a.config.empty() ? "the arguments" : a.config, a.from, train::value_text(config, key));
  if (data.is_given("model.context")) config.model.context = std::min(config.model.context, data.model.context);
  train::check_positions(config, context.registry->models);
  const std::string tokenizer = data.is_given("data.tokenizer") ? data.data.tokenizer : config.data.tokenizer;
  config.data = data.data;
  config.data.tokenizer = tokenizer;
  if (data.is_given("data.text")) config.given.insert("data.text");
  config.runtime = data.runtime;
  if (data.is_given("train.precision")) config.train.precision = data.train.precision;
  config.train.micro_batch = kRows;
  config.train.batch = kRows * train::mesh_of(config).size_of(ir::kDataAxis);
  return config;
}

int evaluate(const Context& context, const EvalArguments& a, train::Config config, comm::Communicator* world) {
  if (world != nullptr)
    train::check_same_settings(config,
                               {{"--step", a.step ? std::to_string(*a.step) : "not given"},
                                {"--batches", std::to_string(a.batches)},
                                device_fact(config)},
                               *world);
  const data::Data data = train::open_data(config, context.registry->models, {}, "evaluate");
  if (!data.eval) refuse("nothing is held out: name data.eval, or set data.holdout above 0");
  if (world != nullptr) train::check_same_data(data, *world);
  train::TrainedModel model(config, *context.registry,
                            {.purpose = train::Purpose::evaluate, .local_ranks = processes_here()}, a.from, a.step,
                            warn, world);
  std::optional<Progress> progress;
  if (is_first_process()) progress.emplace(0, 0);
  const train::Evaluation found =
      train::evaluate(model.session(), *data.eval, a.batches * kRows, [&](std::int64_t done, std::int64_t total) {
        if (progress) progress->evaluation(done, total);
      });
  if (progress) progress->finish();
  train::require_good_inputs(found);
  if (!std::isfinite(found.loss)) fail("the held-out loss is not finite: the model has gone bad");
  const std::int64_t tokens = found.samples * data.eval->tokens_per_sample();
  const bool images = context.registry->models.at(config.model.family).images;
  if (a.json) {
    nlohmann::ordered_json o = {{"loss", found.loss}};
    if (!images) o["perplexity"] = std::exp(found.loss);
    if (found.accuracy) o["accuracy"] = *found.accuracy;
    o[images ? "images" : "tokens"] = tokens;
    if (model.step()) o["step"] = *model.step();
    fmt::print("{}\n", o.dump());
    return 0;
  }
  fmt::print("data    {}\n", data.summary);
  fmt::print("model   {}{}, {} parameters\n", a.from,
             model.step() ? fmt::format(" at step {}", format_count(static_cast<std::uint64_t>(*model.step()))) : "",
             format_count(model.compiled().parameters()));
  const std::string more = found.accuracy ? fmt::format("; accuracy {:.2f}%", 100 * *found.accuracy)
                           : images       ? ""
                                          : fmt::format("; perplexity {}", perplexity_text(found.loss, 2));
  const std::string of =
      found.samples < found.available ? fmt::format(" ({})", train::samples_text(found.samples, found.available)) : "";
  fmt::print("loss    {:.4f} over {} held-out {}{}{}\n", found.loss, format_count(static_cast<std::uint64_t>(tokens)),
             images ? "images" : "tokens", of, more);
  return 0;
}

int evaluate_everywhere(const Context& context, const EvalArguments& a) {
  train::Config config;
  const auto prepare = [&] {
    train::check_is_there(a.from, "--from " + a.from);
    config = combined(a, context);
    return config.parallel.timeout.count;
  };
  return on_all_processes(prepare,
                          [&](comm::Communicator* world) { return evaluate(context, a, std::move(config), world); });
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "Loss and perplexity, or accuracy, on held-out data");
  command->add_option("config", arguments->config, "Configuration with the data; by default that of the run")
      ->check(not_empty());
  command->add_option("--from", arguments->from, "The model: a run folder, or a Hugging Face folder")->required();
  command->add_option("--step", arguments->step, "The checkpoint of this step instead of the newest")
      ->check(not_negative());
  command->add_option("--batches", arguments->batches, "Maximum number of batches of 8 rows, spread evenly; 0: all")
      ->check(not_negative());
  command->add_flag("--json", arguments->json,
                    "One object with loss, perplexity and tokens (accuracy and images), and step");
  command->footer(
      "\nExamples:\n"
      "  trireme eval --from runs/latest\n"
      "  trireme eval my.toml --from runs/my-2 --step 500\n"
      "  trireme eval --from gpt2/ --data.text=book.txt --model.context=512 --json\n"
      "  mpirun -n 4 trireme eval --from runs/latest --parallel.mesh=pp=2,tp=2      a process for each rank\n");
  command->callback([&context, arguments] {
    context.run = [&context, arguments] { return evaluate_everywhere(context, *arguments); };
  });
}

}  // namespace trireme::cli
