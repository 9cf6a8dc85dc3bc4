#include <algorithm>
#include <optional>

#include "trireme/cli/commands.h"
#include "trireme/cli/inspect_schedule.h"
#include "trireme/cli/inspect_sharding.h"
#include "trireme/cli/pass_listings.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/validators.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/ir/print.h"
#include "trireme/program/print.h"
#include "trireme/train/plan_file.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {
namespace {

struct InspectArguments {
  std::string what;
  std::string config;  // "": quickstart
  std::string plan;
  std::string graph;
  std::string program;  // "": step
  std::string after;    // a pass; "": the last
  bool dot = false;
  std::string explain;
  bool collectives = false;
  std::int64_t rank = 0;
  ScheduleArguments schedule;
};

std::string graph_text(const ir::Module& module, const InspectArguments& a) {
  if (a.graph.empty() && !a.dot) return ir::to_text(module);
  const std::string name = a.graph.empty() ? "micro" : a.graph;
  if (!module.has_graph(name)) {
    std::vector<std::string> names;
    for (const ir::Graph& g : module.graphs) names.push_back(g.name);
    refuse("there is no graph '{}'; the graphs are {}", name, fmt::join(names, ", "));
  }
  return a.dot ? ir::to_dot(module, module.graph(name)) : ir::to_text(module, module.graph(name));
}

std::string program_text(const train::Role& role, const std::string& name) {
  if (const program::Program* p = role.find(name)) return program::to_text(*p);
  std::vector<std::string> names;
  for (const program::Program& p : role.programs) names.push_back(p.name);
  refuse("there is no program '{}'; the programs are {}", name, fmt::join(names, ", "));
}

// --explain and --collectives show tables of their own, of the programs that run.
void check_views(const InspectArguments& a) {
  const bool explains = !a.explain.empty();
  if (!explains && !a.collectives) return;
  const std::vector<std::pair<const char*, bool>> others = {{"--collectives", explains && a.collectives},
                                                            {"--graph", !a.graph.empty()},
                                                            {"--after", !a.after.empty()},
                                                            {"--dot", a.dot},
                                                            {"--rank", explains && a.rank != 0}};
  for (const auto& [name, given] : others)
    if (given)
      refuse("{} shows {}, of which {} says nothing; leave one of them out", explains ? "--explain" : "--collectives",
             explains ? "how one tensor is sharded on all ranks" : "the collectives of all graphs, after all passes",
             name);
}

// Options of the one that say nothing about the other.
void check_options(const InspectArguments& a) {
  if (a.what == "schedule") {
    if (a.dot || !a.plan.empty() || !a.graph.empty() || !a.program.empty() || !a.after.empty() || !a.explain.empty() ||
        a.collectives || a.rank != 0)
      refuse(
          "--plan, --dot, --graph, --program, --after, --explain, --collectives and --rank say nothing about a "
          "schedule; --svg "
          "draws it");
    return;
  }
  a.schedule.expect_none(a.what);
  if (a.what == "graph") check_views(a);
  if (a.what == "program" && (!a.explain.empty() || a.collectives))
    refuse("--explain and --collectives are of `trireme inspect graph`");
  if (a.what == "program" && a.dot)
    refuse("--dot draws a graph, and a program is a list; see `trireme inspect graph --dot`");
  if (a.what == "program" && !a.graph.empty())
    refuse("--graph {} is of `trireme inspect graph`; --program chooses a program", a.graph);
  if (a.what == "graph" && !a.program.empty())
    refuse("--program {} is of `trireme inspect program`; --graph chooses a graph", a.program);
}

void check_subject(const InspectArguments& a) {
  const std::string& what = a.what;
  const std::vector<std::string> subjects = {"graph", "program", "schedule"};
  if (what.empty())
    refuse(
        "inspect shows a graph, a program or a schedule: trireme inspect graph, trireme inspect program, trireme "
        "inspect schedule");
  if (std::find(subjects.begin(), subjects.end(), what) != subjects.end()) return check_options(a);
  const auto near = nearest(what, subjects);
  refuse("inspect shows a graph, a program or a schedule, not '{}'{}", what,
         near ? "; did you mean '" + *near + "'?" : "");
}

// As the pass --after left it.
std::string text_after(const InspectArguments& a, const PassListings& listings, const train::Role& role,
                       const ir::Registry& ops) {
  std::vector<std::string> programs;
  for (const program::Program& p : role.programs) programs.push_back(p.name);
  const std::string program = a.what == "graph" ? "" : a.program.empty() ? "step" : a.program;
  const std::string text = listings.after(a.after, program, programs, role.name);
  return a.what == "graph" ? graph_text(ir::parse(text, ops), a) : text;
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command =
      app.add_subcommand("inspect", "The graph after passes, a rank's program, or a pipeline's schedule");
  command->add_option("what", arguments->what, "graph, program or schedule");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration")
      ->check(not_empty());
  command->add_option("--plan", arguments->plan, "A plan to follow, as of train --plan");
  command->add_option("--graph", arguments->graph, "One graph alone: micro, update, eval, predict, init, refresh");
  command->add_option("--program", arguments->program, "step, eval, predict, init or refresh");
  command->add_option("--after", arguments->after, "As this pass left it; `model`: before the first");
  command->add_flag("--dot", arguments->dot, "The graph for Graphviz");
  command->add_option("--explain", arguments->explain,
                      "Why a parameter or value is sharded as it is; * stands for any characters");
  command->add_flag("--collectives", arguments->collectives, "Every collective: axis, bytes sent, and what it is for");
  command->add_option("--rank", arguments->rank, "Rank of the program, from 0");
  arguments->schedule.add_to(*command);
  command->footer(
      "\nExamples:\n"
      "  trireme inspect graph --graph micro | less\n"
      "  trireme inspect graph --dot | dot -Tsvg > graph.svg\n"
      "  trireme inspect graph my.toml --parallel.mesh=tp=2 --explain '*.down.weight'\n"
      "  trireme inspect graph my.toml --parallel.mesh=tp=2 --collectives\n"
      "  trireme inspect graph my.toml --after autodiff --graph micro\n"
      "  trireme inspect program my.toml --train.micro_batch=4\n"
      "  trireme inspect schedule --stages 4 --micro-batches 8 --pipeline zero-bubble\n"
      "  trireme inspect schedule --stages 4 --micro-batches 8 --pipeline interleaved:2 --svg pipeline.svg\n");
  command->callback([&context, arguments] {
    context.run = [&context, arguments] {
      check_subject(*arguments);
      if (arguments->what == "schedule") return inspect_schedule(context, arguments->config, arguments->schedule);
      const std::string config = arguments->config.empty() ? "quickstart" : arguments->config;
      Preparation preparation("preparing");
      train::TrainerOptions options = planning_options(preparation);
      std::optional<PassListings> listings;
      if (!arguments->after.empty()) options.dump_passes = listings.emplace().folder();
      train::Followed followed =
          train::load_shown(arguments->plan, config, context.overrides, context.registry->models);
      options.plan = std::move(followed.plan);
      const train::Trainer trainer(std::move(followed.config), *context.registry, options);
      preparation.finish();
      if (!arguments->explain.empty()) {
        fmt::print("{}", explained_sharding(trainer.config(), *context.registry, arguments->explain));
        return 0;
      }
      const train::Compiled& compiled = trainer.compiled();
      if (arguments->rank < 0 || arguments->rank >= compiled.ranks())
        refuse("--rank {}: this run has {}", arguments->rank,
               compiled.ranks() == 1 ? "one rank, number 0"
                                     : fmt::format("{} ranks, from 0 to {}", compiled.ranks(), compiled.ranks() - 1));
      const train::Role& role = compiled.role_of(static_cast<int>(arguments->rank));
      if (arguments->collectives) {
        fmt::print("{}", collectives_table(role));
        return 0;
      }
      if (listings) {
        fmt::print("{}", text_after(*arguments, *listings, role, context.registry->ops));
        return 0;
      }
      fmt::print("{}", arguments->what == "graph"
                           ? graph_text(role.module, *arguments)
                           : program_text(role, arguments->program.empty() ? "step" : arguments->program));
      return 0;
    };
  });
}

}  // namespace trireme::cli
