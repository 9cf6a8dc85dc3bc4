#include "trireme/cli/commands.h"
#include "trireme/cli/report.h"
#include "trireme/core/error.h"

namespace trireme::cli {
namespace {

struct MemoryArguments {
  std::string config = "quickstart";
  bool json = false;
};

}  // namespace

void add_memory(CLI::App& app, Context& context) {
  auto arguments = std::make_shared<MemoryArguments>();
  CLI::App* command = app.add_subcommand("memory", "The memory plan, to the byte, without running");
  command->add_option("config", arguments->config, "A TOML file, a run folder, or a built-in configuration");
  command->add_flag("--json", arguments->json, "For scripts");
  command->footer(
      "\nExamples:\n"
      "  trireme memory                                       the quickstart\n"
      "  trireme memory my.toml --train.precision=bf16        what half precision saves\n"
      "  trireme memory my.toml --train.micro_batch=4 --json\n");
  command->callback([&context, arguments] {
    context.run = [&context, arguments] {
      train::TrainerOptions options;
      options.write = false;
      const train::Trainer trainer(train::load_config(arguments->config, context.overrides, context.registry->models),
                                   *context.registry, options);
      fmt::print("{}", arguments->json ? memory_json(trainer.compiled()) : memory_text(trainer.compiled()));
      return 0;
    };
  });
}

}  // namespace trireme::cli
