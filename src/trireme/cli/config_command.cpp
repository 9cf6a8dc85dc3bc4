#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/config.h"

namespace trireme::cli {
namespace {

int show(const std::string& name, const models::Families& families) {
  if (name.empty()) {
    fmt::print("{}\n# Built-in configurations, printed by `trireme config NAME`:\n", train::describe_config(families));
    for (const train::Builtin& b : train::builtin_configs()) fmt::print("#   {:<18} {}\n", b.name, b.summary);
    return 0;
  }
  std::vector<std::string> names;
  for (const train::Builtin& b : train::builtin_configs()) {
    if (b.name == name) {
      fmt::print("{}", b.toml);
      return 0;
    }
    names.emplace_back(b.name);
  }
  const auto near = nearest(name, names);
  refuse("there is no built-in configuration '{}'; {}", name,
         near ? "did you mean '" + *near + "'?" : fmt::format("there are {}", fmt::join(names, ", ")));
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  auto name = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("config", "Every key with its default and meaning, or a built-in configuration to start from");
  command->add_option("name", *name, "A built-in configuration");
  command->footer(
      "\nExamples:\n"
      "  trireme config | less\n"
      "  trireme config quickstart > my.toml && trireme train my.toml\n");
  command->callback(
      [&context, name] { context.run = [&context, name] { return show(*name, context.registry->models); }; });
}

}  // namespace trireme::cli
