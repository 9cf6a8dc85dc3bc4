#include <filesystem>

#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/config.h"

namespace trireme::cli {
namespace {

// What `trireme train` would run with, given the same words; without any, every key and what it means.
int show(const Context& context, const std::string& name, bool markdown) {
  const models::Families& families = context.registry->models;
  if (markdown) {
    fmt::print("{}", train::reference_page(families));
    return 0;
  }
  std::error_code unknown;
  if (!context.overrides.empty() || std::filesystem::exists(name, unknown)) {
    fmt::print("{}",
               train::to_toml(train::load_config(name.empty() ? "quickstart" : name, context.overrides, families)));
    return 0;
  }
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
      app.add_subcommand("config", "Every key with its default and meaning, or the configuration a command line gives");
  command->add_option("name", *name, "A built-in configuration, a TOML file or a run folder");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "Every key as the page docs/options.md");
  command->footer(
      "\nExamples:\n"
      "  trireme config | less\n"
      "  trireme config quickstart > my.toml && trireme train my.toml\n"
      "  trireme config my.toml --train.lr=3e-4             what `trireme train` would run with\n");
  command->callback([&context, name, markdown] {
    context.run = [&context, name, markdown] { return show(context, *name, *markdown); };
  });
}

}  // namespace trireme::cli
