#include "trireme/cli/commands.h"
#include "trireme/cli/plan_report.h"
#include "trireme/cli/preparation.h"
#include "trireme/cli/report.h"
#include "trireme/cli/validators.h"
#include "trireme/cli/work_progress.h"
#include "trireme/train/plan_file.h"

namespace trireme::cli {
namespace {

struct MemoryArguments {
  std::string config = "quickstart";
  bool json = false;
  bool brief = false;
  std::string plan;
  std::string plan_out;
};

int memory(const Context& context, const MemoryArguments& a) {
  if (a.plan_out != "-") check_plan_out("--plan-out", a.plan_out);
  Preparation preparation("preparing");
  train::Followed followed = train::load_shown(a.plan, a.config, context.overrides, context.registry->models);
  train::TrainerOptions options = planning_options(preparation);
  options.plan = std::move(followed.plan);
  options.within_limit = !a.plan_out.empty();  // a plan that is written down is one that can be followed
  const train::Trainer trainer(std::move(followed.config), *context.registry, options);
  preparation.finish();
  if (!a.plan_out.empty()) {
    const std::string text = train::plan_text(trainer.config(), trainer.planned());
    if (a.plan_out == "-") {
      fmt::print("{}", text);
      return 0;
    }
    write_plan(a.plan_out, text);
  }
  std::vector<train::WhatIf> savings;
  if (!a.brief) {
    WorkProgress progress;
    savings = train::what_if(trainer.config(), *context.registry,
                             {.threads = trainer.threads(),
                              .staging = trainer.compiled().roles.front().layout.staging_bytes,
                              .transport = trainer.compiled().plan.transport},
                             trainer.compiled(), [&](std::size_t done, std::size_t total) {
                               progress.count("compiling plans", done, total);
                             });
    progress.finish();
  }
  if (a.json) {
    fmt::print("{}", memory_json(trainer, savings));
    return 0;
  }
  fmt::print("{}", memory_text(trainer));
  for (const std::string& shortfall : trainer.shortfalls()) fmt::print("would not run here: {}\n", shortfall);
  if (!savings.empty()) fmt::print("\n{}", savings_text(savings));
  return 0;
}

}  // namespace

void add_memory(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* command = app.add_subcommand("memory", "The memory plan, to the byte, without running");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_flag("--json", arguments->json, "For scripts");
  command->add_flag("--brief", arguments->brief, "The plan alone, without what savings would give");
  command->add_option("--plan", arguments->plan, "A plan to follow, as of train --plan; it may have been edited")
      ->check(not_empty());
  command
      ->add_option("--plan-out", arguments->plan_out,
                   "Write the plan to this file, for train --plan; - prints it and nothing else")
      ->check(not_empty());
  command->footer(
      "\nExamples:\n"
      "  trireme memory                                       the quickstart\n"
      "  trireme memory my.toml --train.precision=bf16        what half precision saves\n"
      "  trireme memory my.toml --memory.remat=sqrt --brief\n"
      "  trireme memory my.toml --train.micro_batch=4 --json\n"
      "  trireme memory my.toml --memory.limit=2GiB --plan-out plan.toml\n"
      "  trireme memory my.toml --plan plan.toml              what that plan takes, as it is now\n");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return memory(context, *arguments); }; });
}

}  // namespace trireme::cli
