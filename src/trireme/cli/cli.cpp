#include "trireme/cli/cli.h"

#include <cstdio>

#include "trireme/cli/commands.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/train/config.h"

namespace trireme::cli {
namespace {

constexpr const char* kFooter =
    "\nEvery configuration key can be given as --section.key=value; `trireme config` lists them.\n\n"
    "Examples:\n"
    "  trireme train                                      the built-in quickstart: a small GPT on this machine's C++ "
    "headers\n"
    "  trireme train my.toml --train.lr=3e-4              a configuration of your own, one value changed\n"
    "  trireme train my.toml --dry-run                    compile, check and plan memory, then stop\n"
    "  trireme memory my.toml --train.micro_batch=4       how many bytes, and for what, without running\n"
    "  trireme inspect program my.toml                    every instruction and where its bytes lie\n"
    "  trireme generate --from runs/latest --prompt 'template<'\n";

int report(const Error& e) {
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", e.message());
  return e.kind() == Error::Kind::request ? 2 : 1;
}

// CLI11's own message for an unknown word names the word alone; a person wants the nearest command too.
std::string explain(const CLI::App& app, const CLI::ParseError& e, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (!arguments.empty() && !arguments.front().starts_with("-") &&
      std::find(names.begin(), names.end(), arguments.front()) == names.end()) {
    const auto near = nearest(arguments.front(), names);
    return fmt::format(
        "unknown command '{}'; {}", arguments.front(),
        near ? "did you mean '" + *near + "'?" : fmt::format("the commands are {}", fmt::join(names, ", ")));
  }
  std::string message = e.what();
  while (!message.empty() && message.back() == '\n') message.pop_back();
  return message + "; see trireme --help";
}

}  // namespace

int cli_main(int argc, char** argv, const ir::Registry& registry) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  Context context;
  context.registry = &registry;
  context.command_line = fmt::format("trireme {}", fmt::join(arguments, " "));
  CLI::App app("Trireme trains models that are too large, or too slow, for one device.", "trireme");
  app.set_version_flag("--version", "trireme 0.1.0");
  app.footer(kFooter);
  app.require_subcommand(1);
  add_train(app, context);
  add_generate(app, context);
  add_memory(app, context);
  add_inspect(app, context);
  add_bench(app, context);
  add_config(app, context);
  add_doctor(app, context);
  try {
    if (arguments.empty()) {
      fmt::print("{}", app.help());
      return 0;
    }
    context.overrides = train::take_overrides(arguments);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
    app.parse(reversed);
    return context.run();
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "error: {}\n", explain(app, e, arguments));
    return 2;
  } catch (const Error& e) {
    return report(e);
  } catch (const std::bad_alloc&) {
    return report(Error(Error::Kind::failure, "out of memory"));
  } catch (const std::exception& e) {
    return report(Error(Error::Kind::failure, e.what()));
  }
}

}  // namespace trireme::cli
