#include "trireme/cli/commands.h"
#include "trireme/cli/shell_texts.h"
#include "trireme/core/error.h"

namespace trireme::cli {

void add_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* completion = app.add_subcommand("completion", "The script by which a shell completes commands and keys");
  completion->add_option("shell", *shell, "bash, zsh or fish")->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "\nExamples:\n"
      "  source <(trireme completion bash)\n"
      "  trireme completion fish > ~/.config/fish/completions/trireme.fish\n");
  completion->callback([&context, shell] {
    context.run = [&context, shell] {
      const CLI::CommandInfo program = context.commands->describe();
      fmt::print("{}", *shell == "fish"  ? fish_completion(program)
                       : *shell == "zsh" ? zsh_completion(program)
                                         : bash_completion(program));
      return 0;
    };
  });

  CLI::App* man = app.add_subcommand("man", "The manual page, as man reads it");
  man->footer("\nExample:\n  trireme man | man -l -\n");
  man->callback([&context] {
    context.run = [&context] {
      fmt::print("{}", manual_page(context.commands->describe()));
      return 0;
    };
  });
}

}  // namespace trireme::cli
