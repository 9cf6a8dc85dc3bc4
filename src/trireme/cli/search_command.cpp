#include "trireme/cli/commands.h"
#include "trireme/cli/progress.h"
#include "trireme/cli/signals.h"
#include "trireme/cli/validators.h"
#include "trireme/compress/search.h"
#include "trireme/core/error.h"
#include "trireme/train/open_data.h"

namespace trireme::cli {
namespace {

struct SearchArguments {
  std::string config = "quickstart";
  std::string budget;
  std::string out;
  std::int64_t candidates = 8, keep = 2, rungs = 3, generations = 1, children = 2;
  std::int64_t seed = 1;
};

int search_once(const Context& context, const SearchArguments& a) {
  compress::SearchOptions options;
  options.budget = compress::parse_budget(a.budget);
  options.base = train::load_config(a.config, context.overrides, context.registry->models);
  if (context.registry->models.at(options.base.model.family).images)
    refuse("model.family = \"{}\": the search is over layers, width, heads and ffn of gpt2 and llama",
           options.base.model.family);
  // The vocabulary counts, and is the data's.
  const data::Data data = train::open_data(options.base, context.registry->models);
  if (!data.eval) refuse("a search compares held-out losses: set data.holdout or data.eval");
  train::resolve_model(options.base, data.vocab, context.registry->models);
  options.folder = a.out;
  options.candidates = a.candidates;
  options.keep = a.keep;
  options.rungs = a.rungs;
  options.generations = a.generations;
  options.children = a.children;
  options.seed = static_cast<std::uint64_t>(a.seed);
  Signals signals;
  Signals::between_steps();
  options.request = [&](const train::Metrics&) { return signals.take(); };
  options.say = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  fmt::print("search  {} candidates, one in {} goes on, {} rungs up to {} steps, {} generations of {}\n", a.candidates,
             a.keep, a.rungs, options.base.train.steps, a.generations, a.children);
  const compress::SearchResult found = compress::search(options, *context.registry);
  if (found.stopped) {
    fmt::print("stopped {}: the same command goes on from there\n", a.out);
    return signals.exit_code();
  }
  fmt::print("\n{}", compress::picture(found, options.budget.kind));
  const compress::Candidate& best = found.candidates[static_cast<std::size_t>(found.best)];
  const double loss = best.loss.at(options.base.train.steps);
  fmt::print("best    {}: --model.layers={} --model.width={} --model.heads={} --model.ffn={}   loss {:.4f}, {}\n",
             best.id, best.layers, best.width, best.heads, best.ffn, loss,
             compress::cost_text(options.budget.kind, best.cost));
  if (found.base) {
    const compress::Candidate& base = found.candidates[static_cast<std::size_t>(*found.base)];
    fmt::print("given   {}×{}: loss {:.4f}, {}\n", base.layers, base.width, base.loss.at(options.base.train.steps),
               compress::cost_text(options.budget.kind, base.cost));
  }
  fmt::print("total   {} steps trained by this call; run {}/candidate-{:03}\n", found.trained_steps, a.out, best.id);
  return 0;
}

}  // namespace

void add_search(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<SearchArguments>();
  CLI::App* command =
      app.add_subcommand("search", "Search for the shape of a model with the least loss within a budget");
  command->add_option("config", arguments->config, "Configuration: data, optimizer, steps, and the shape to beat");
  command->add_option("--budget", arguments->budget, "params=2M, bytes=8MiB, step=20ms or decode=1ms")->required();
  command->add_option("--out", arguments->out, "Folder for the candidates' runs; an interrupted search goes on there")
      ->required();
  command->add_option("--candidates", arguments->candidates, "Shapes to begin with")->check(CLI::Range(1, 10000));
  command->add_option("--keep", arguments->keep, "One in so many goes on to the next rung")->check(CLI::Range(2, 100));
  command->add_option("--rungs", arguments->rungs, "Rungs of successive halving")->check(CLI::Range(1, 20));
  command->add_option("--generations", arguments->generations, "Generations of evolution after it")
      ->check(not_negative());
  command->add_option("--children", arguments->children, "Children of a generation")->check(CLI::Range(1, 1000));
  command->add_option("--seed", arguments->seed, "Of the shapes that are drawn")->check(not_negative());
  command->footer(
      "\nExamples:\n"
      "  trireme search --budget params=842496 --out runs/search --train.steps=200\n"
      "  trireme search my.toml --budget decode=2ms --out runs/fast --candidates 16 --rungs 4\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return search_once(context, *arguments); }; });
}

}  // namespace trireme::cli
