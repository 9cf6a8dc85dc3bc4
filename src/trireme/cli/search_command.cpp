#include <algorithm>
#include <chrono>

#include "trireme/cli/live_line.h"
#include "trireme/cli/measured_step.h"
#include "trireme/cli/output.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/processes.h"
#include "trireme/cli/search.h"
#include "trireme/cli/search_cost.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/validators.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/compress/measure.h"
#include "trireme/compress/search_runs.h"
#include "trireme/core/error.h"
#include "trireme/train/open_data.h"

namespace trireme::cli {
namespace {

// The shape to beat, with what the data decides of it.
train::Config base_of(const Context& context, const SearchArguments& a) {
  const train::Registry& registry = *context.registry;
  train::Config config = train::load_config(a.from, context.overrides, registry.models);
  config.output.dir.clear();
  config.init.from.clear();  // weights of one shape are of no use for others
  const data::Data data = train::open_data(config, registry.models);
  if (!data.eval) refuse("a search compares held-out losses: set data.holdout or data.eval");
  train::resolve_model(config, data.vocab, registry.models);
  return config;
}

// Depths of the families that have a few only.
std::vector<std::int64_t> depths_of(const train::Config& config, const train::Registry& registry) {
  std::vector<std::int64_t> depths;
  if (!registry.models.at(config.model.family).images) return depths;
  constexpr std::int64_t kDeepest = 50;
  for (std::int64_t n = 1; n <= kDeepest; ++n) {
    models::ModelConfig model = config.model;
    model.layers = n;
    try {
      registry.models.at(model.family).resolve(model, config.names);
    } catch (const Error& e) {
      if (e.kind() != Error::Kind::request) throw;
      continue;
    }
    if (config.model.layers >= 18 || n <= 3 * config.model.layers) depths.push_back(n);
  }
  return depths;
}

std::string question(const train::Config& base, const SearchArguments& a, double budget) {
  return fmt::format(
      "budget = \"{} = {}\"\ncandidates = {}\nkeep = {}\nrungs = {}\ngenerations = {}\nchildren = {}\nseed = {}\n\n{}",
      a.budget.substr(0, a.budget.find('=')), budget, a.candidates, a.keep, a.rungs, a.generations, a.children, a.seed,
      train::to_toml(base));
}

std::string row(const compress::Candidate& c, compress::Budget::Kind kind, std::int64_t steps, std::string_view loss) {
  return fmt::format("{:>4}  {:<32} {:>16}  {:>6} steps  loss {}{}", c.id, compress::text_of(c.shape),
                     compress::cost_text(kind, c.cost), steps, loss,
                     c.parent < 0 ? "" : fmt::format("  varies {}", c.parent));
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

// What was predicted of the best, measured here.
std::string measured_text(const Context& context, const compress::Candidate& best, const train::Config& config,
                          const std::filesystem::path& run, compress::Budget::Kind kind) {
  const train::Registry& registry = *context.registry;
  double seconds = 0;
  if (kind == compress::Budget::Kind::step) {
    seconds = median(measured_steps(config, registry, {.steps = 15, .warmup = 3}));
  } else if (kind == compress::Budget::Kind::decode) {
    const compress::Model model = compress::load_model(run.string(), {}, registry, {}, log_to_stderr);
    seconds = compress::decode_seconds(model, registry, compress::kDecodeTokens);
  } else {
    return "";
  }
  return fmt::format("measured {:.3f} ms here, {:+.1f}% from the prediction\n", 1e3 * seconds,
                     100 * (seconds / best.cost - 1));
}

// Of which the first prints, and all train.
int search_together(const Context& context, const SearchArguments& a, comm::Communicator* world) {
  const bool first = world == nullptr || world->rank() == 0;
  const train::Registry& registry = *context.registry;
  compress::Budget budget = compress::parse_budget(a.budget, a.option);
  const train::Config base = base_of(context, a);
  const bool images = registry.models.at(base.model.family).images;
  if (images && budget.kind == compress::Budget::Kind::decode)
    refuse("{} {}: a model of images decodes nothing; use step=, params= or bytes=", a.option, a.budget);
  const compress::ShapeSpace space(base, images, depths_of(base, registry));

  compress::DecodeCost decode;
  if (budget.kind == compress::Budget::Kind::decode)
    decode = decode_cost_for(space, budget.most, a.out, registry, world);
  compress::SearchOptions options;
  options.cost = [&](const compress::ModelShape& shape) {
    return compress::cost_of(space.with(shape), budget.kind, registry, &decode);
  };
  const std::optional<double> own = options.cost(space.base());
  if (budget.most == 0) {
    if (!own) train::check(base, registry.models);  // says why
    budget.most = own.value_or(0);
  }
  options.budget = budget.most;
  options.steps = base.train.steps;
  options.candidates = a.candidates;
  options.keep = a.keep;
  options.rungs = a.rungs;
  options.generations = a.generations;
  options.children = a.children;
  options.seed = static_cast<std::uint64_t>(a.seed);

  Signals signals;
  LiveLine live;
  auto shown = std::chrono::steady_clock::now();
  compress::SearchRunsOptions run_options;
  run_options.folder = a.out;
  run_options.question = question(base, a, budget.most);
  run_options.workers = static_cast<int>(a.workers);
  run_options.world = world;
  if (world != nullptr) run_options.processes_here = comm::mpi::launched()->here;
  run_options.steps = options.steps;
  run_options.request = [&](const train::Metrics&) { return signals.take(); };
  if (first)
    run_options.on_step = [&](const compress::Candidate& c, const train::Metrics& m, std::int64_t steps) {
      const auto now = std::chrono::steady_clock::now();
      if (std::chrono::duration<double>(now - shown).count() < live.pause()) return;
      shown = now;
      live.show(row(c, budget.kind, m.step, fmt::format("{:.4f} of {} steps", m.loss, steps)));
    };
  run_options.log = [](LogLevel level, const std::string& text) {
    if (level == LogLevel::warning) log_to_stderr(level, text);
  };
  compress::SearchRuns runs(std::move(run_options), space, registry);
  options.train = [&](std::span<const compress::Candidate* const> who, std::int64_t steps) {
    return runs.train(who, steps);
  };
  options.trained = [&](const compress::Candidate& c, std::int64_t steps) {
    live.clear();
    fmt::print("{}\n", row(c, budget.kind, steps, fmt::format("{:.4f}", c.loss.at(steps))));
    std::fflush(stdout);
  };
  fmt::print(
      "search  {} candidates within {}, one in {} goes on, {} rung{} up to {} steps, then {} generation{} of {}\n",
      a.candidates, compress::cost_text(budget.kind, budget.most), a.keep, a.rungs, a.rungs == 1 ? "" : "s",
      options.steps, a.generations, a.generations == 1 ? "" : "s", a.children);
  Signals::between_steps("the step is finished and a checkpoint written",
                         "what was trained since the last checkpoint is lost");
  const compress::SearchResult found = compress::search(space, options);
  live.clear();
  if (found.candidates.empty())
    refuse("{} {}: no shape near the given one is within it{}; give more, or a smaller shape to start from", a.option,
           a.budget, own ? ", which itself costs " + compress::cost_text(budget.kind, *own) : "");
  if (first && std::ssize(found.candidates) < a.candidates)
    say(stderr,
        "warning: {} of {} candidates were found: shapes near the given one that use at least 90% of the budget are "
        "rare\n",
        found.candidates.size(), a.candidates);
  if (found.stopped) {
    fmt::print("stopped {}: the same command goes on from there\n", a.out);
    return signals.exit_code();
  }
  if (found.best < 0) fail("no candidate was trained to the end");
  if (!first) return 0;
  const compress::Candidate& best = found.candidates[static_cast<std::size_t>(found.best)];
  fmt::print("\n{}\n", compress::picture(found, budget.kind));
  fmt::print("best    {}: {}, loss {:.4f}, {}\n", best.id, compress::text_of(best.shape), best.loss.at(options.steps),
             compress::cost_text(budget.kind, best.cost));
  if (found.base) {
    const compress::Candidate& given = found.candidates.front();
    fmt::print("given   {}: {}, loss {:.4f}, {}\n", given.id, compress::text_of(given.shape),
               given.loss.at(options.steps), compress::cost_text(budget.kind, given.cost));
  }
  fmt::print("total   {} steps were trained by this call\n", runs.steps_trained());
  fmt::print("{}", measured_text(context, best, space.with(best.shape), runs.folder_of(best), budget.kind));
  // The candidate's own configuration has all that was given, wherever it came from.
  fmt::print("run     {0}\nnext    trireme train {0} --output.dir=NAME\n", runs.folder_of(best).string());
  return 0;
}

}  // namespace

int search_shapes(const Context& context, const SearchArguments& a) {
  // One process may train for as long as it takes while the others wait.
  constexpr double kWait = 1e7;
  return on_all_processes(kWait, [&](comm::Communicator* world) { return search_together(context, a, world); });
}

void add_search(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<SearchArguments>();
  CLI::App* command =
      app.add_subcommand("search", "Search for the shape of a model with the least loss within a budget");
  command->add_option(
      "from", arguments->from,
      "Data, optimizer, steps and the shape to beat: a configuration, a run folder, a Hugging Face folder");
  command
      ->add_option(
          "--budget", arguments->budget,
          "What a shape may cost: params=2M, bytes=8MiB, step=20ms or decode=1ms; params, bytes, step, decode: "
          "as much as the given shape")
      ->required();
  command->add_option("--out", arguments->out, "Folder for the candidates' runs; an interrupted search goes on there")
      ->required();
  command->add_option("--candidates", arguments->candidates, "Shapes to begin with")->check(CLI::Range(1, 10000));
  command->add_option("--keep", arguments->keep, "One in so many goes on to the next rung")->check(CLI::Range(2, 100));
  command->add_option("--rungs", arguments->rungs, "Rungs of successive halving")->check(CLI::Range(1, 20));
  command->add_option("--generations", arguments->generations, "Generations of evolution after it")
      ->check(not_negative());
  command->add_option("--children", arguments->children, "Children of a generation")->check(CLI::Range(1, 1000));
  command
      ->add_option("--workers", arguments->workers,
                   "Candidates trained at a time by each process, each on its share of the cores")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", arguments->seed, "Seed of the random choice of shapes")->check(not_negative());
  command->footer(
      "\nExamples:\n"
      "  trireme search --budget params --out runs/search --train.steps=200\n"
      "  trireme search my.toml --budget decode=2ms --out runs/fast --candidates 16 --rungs 4\n"
      "  mpirun -n 4 trireme search my.toml --budget params --out runs/search\n"
      "  trireme search convnet --data.images=digits/ --budget params=20k --out runs/small --workers 2\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return search_shapes(context, *arguments); }; });
}

}  // namespace trireme::cli
