#include "trireme/cli/cli.h"

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "trireme/cli/commands.h"
#include "trireme/cli/help_text.h"
#include "trireme/cli/output.h"
#include "trireme/cli/processes.h"
#include "trireme/cli/shell_texts.h"
#include "trireme/cli/signals.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/process_limits.h"
#include "trireme/core/text.h"
#include "trireme/core/version.h"
#include "trireme/program/schedule/generate.h"
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

// Words of the language that this version does not speak yet.
constexpr std::array<std::string_view, 1> kLater = {"dashboard"};

// What other systems, and people, call a command.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kOtherNames = {
    {{"prune", "compress --prune"},
     {"quantize", "compress --weights"},
     {"quantise", "compress --weights"},
     {"distil", "compress --distil"},
     {"distill", "compress --distil"},
     {"sample", "generate"},
     {"chat", "generate"},
     {"finetune", "train --init.from"},
     {"fine-tune", "train --init.from"},
     {"resume", "train --resume"},
     {"convert", "import"},
     {"test", "eval"}}};

std::optional<std::string> unknown_command(const ::CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const ::CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (names.empty() || arguments.empty() || arguments.front().starts_with("-")) return std::nullopt;
  const std::string& word = arguments.front();
  for (const ::CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == word) return unknown_command(*command, {arguments.begin() + 1, arguments.end()});
  const std::string of = app.get_parent() == nullptr ? "" : app.get_name() + " ";
  if (std::find(kLater.begin(), kLater.end(), word) != kLater.end())
    return fmt::format("not available in this version: {}{} (available: {})", of, word, fmt::join(names, ", "));
  auto near = nearest(word, names);
  const auto* const other =
      std::find_if(kOtherNames.begin(), kOtherNames.end(), [&](const auto& name) { return name.first == word; });
  if (app.get_parent() == nullptr && other != kOtherNames.end()) near = other->second;
  return fmt::format(
      "unknown command '{}{}'; {}", of, word,
      near ? "did you mean '" + of + *near + "'?" : fmt::format("the commands are {}{}", of, fmt::join(names, ", ")));
}

bool is_pipeline(const std::string& text) {
  try {
    program::parse_pipeline(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Words that mean one thing to one command and something else to another.
std::optional<std::string> meant_here(const ::CLI::App& command, const std::string& name, const std::string& value,
                                      const std::vector<std::string>& options) {
  if (name == "schedule") {
    if (std::find(options.begin(), options.end(), "pipeline") != options.end()) return "did you mean --pipeline?";
    if (is_pipeline(value)) return "did you mean --parallel.pipeline?";
  }
  if (name == "plan" && std::find(options.begin(), options.end(), "plan") == options.end())
    return fmt::format(
        "a plan says how a model is trained, and `trireme {}` follows none: train, memory, inspect, simulate and bench "
        "step do; --parallel.mesh=tp=2 would name the ranks",
        command.get_name());
  if (command.get_name() == "compress" && name.starts_with("quanti")) return "did you mean --weights?";
  if (name != "from" || command.get_name() == "train") return std::nullopt;
  std::string places;
  for (const ::CLI::Option* option : command.get_options())
    if (option->get_positional()) places += " " + option->get_single_name();
  if (places.empty()) return std::nullopt;
  return fmt::format("it is given without a name: trireme {}{}", command.get_name(), places);
}

// "see trireme inspect program --help", of the command that was asked for.
std::string see_help(const ::CLI::App& app) {
  std::string text = "see " + app.get_name();
  for (const ::CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    text += " " + command->get_name();
  }
  return text + " --help";
}

std::string unexpected(const ::CLI::App& app, const std::string& word, const std::vector<std::string>& arguments) {
  const ::CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (!word.starts_with("--")) return fmt::format("unexpected argument '{}'; {}", word, see_help(app));
  const std::string name = word.substr(2, word.find('=') - 2);
  std::vector<std::string> options;
  for (const ::CLI::Option* option : command->get_options())
    options.insert(options.end(), option->get_lnames().begin(), option->get_lnames().end());
  const std::size_t equals = word.find('=');
  const auto at = std::find(arguments.begin(), arguments.end(), word);
  const bool follows = arguments.end() - at > 1;
  const std::string value = equals != std::string::npos ? word.substr(equals + 1) : follows ? *(at + 1) : "";
  if (const auto here = meant_here(*command, name, value, options))
    return fmt::format("unknown option --{}; {}", name, *here);
  auto meant = nearest(name, options);
  if (!meant) meant = train::suggest_key(name);
  return fmt::format("unknown option --{}{}", name, meant ? "; did you mean --" + *meant + "?" : "; " + see_help(app));
}

std::vector<std::string> options_of(const ::CLI::App& app, const std::string& name) {
  std::vector<std::string> options;
  for (const ::CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name)
      for (const ::CLI::Option* option : command->get_options())
        options.insert(options.end(), option->get_lnames().begin(), option->get_lnames().end());
  return options;
}

// CLI11's own messages name the word alone; a person wants the nearest one that is known too.
std::string explain(const ::CLI::App& app, const ::CLI::ParseError& e, const std::vector<std::string>& arguments) {
  if (const auto message = unknown_command(app, arguments)) return *message;
  if (const std::vector<std::string> rest = app.remaining(true); !rest.empty())
    return unexpected(app, rest.front(), arguments);
  return fmt::format("{}; {}", CLI::plain_words(e, app), see_help(app));
}

// CLI11 takes the next word for the value of "--plan", also where that is an option, or "--cluster=" is empty, as by a
// shell's variable that was never set; and it reads "--json=-1" as if the flag were not there.
void check_values(const ::CLI::App& app, const std::vector<std::string>& arguments) {
  const ::CLI::App* command = &app;
  std::string called = app.get_name();
  const auto name_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  const auto option_of = [&](const std::string& word) -> const ::CLI::Option* {
    return word.size() > 1 && word.starts_with('-') ? command->get_option_no_throw(name_of(word)) : nullptr;
  };
  const auto is_option = [&](const std::string& word) {
    return option_of(word) != nullptr || (word.starts_with("--") && name_of(word).find('.') != std::string::npos);
  };
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    const ::CLI::Option* option = option_of(word);
    if (option == nullptr) {
      for (const ::CLI::App* one : command->get_subcommands({}))
        if (one->get_name() == word) {
          command = one;
          called += " " + word;
          break;
        }
      continue;
    }
    const std::string name = name_of(word);
    const bool equals = name.size() < word.size();
    if (option->get_items_expected_max() == 0) {
      if (equals)
        refuse("{} is a flag and takes no value; leave out \"{}\"; see {} --help", name, word.substr(name.size()),
               called);
    } else if (equals) {
      if (name.size() + 1 == word.size()) refuse("{} is empty; name one, or leave it out; see {} --help", word, called);
    } else if (i + 1 < arguments.size() && is_option(arguments[i + 1])) {
      refuse("{} needs a value, and the next word is the option {}; {}: {}", name, name_of(arguments[i + 1]), name,
             option->get_description());
    } else {
      ++i;
    }
  }
}

// A command that reads a configuration says where its keys are listed; `train` lists them itself.
void point_to_keys(::CLI::App& app) {
  for (::CLI::App* command : app.get_subcommands([](::CLI::App*) { return true; })) {
    point_to_keys(*command);
    if (command->get_name() != "train" && command->get_option_no_throw("config") != nullptr)
      command->footer(
          "\nEvery configuration key can be given as --section.key=value; `trireme train --help` lists them.\n" +
          command->get_footer());
  }
}

// Of the terminal or, for a pipe, what the shell says; else as they are.
int help_width() {
  if (const int columns = terminal_width(stdout); columns > 0) return columns;
  const char* said = std::getenv("COLUMNS");
  return said == nullptr ? 0 : std::atoi(said);
}

// Whether several processes of a launcher are the ranks of a command.
bool runs_on_several(std::string_view command) {
  constexpr std::array<std::string_view, 4> kAlone = {"compress", "import", "export", "tokenize"};
  return std::find(kAlone.begin(), kAlone.end(), command) == kAlone.end();
}

// Whether a command tells the same in every process, so that the first alone runs it.
bool says_the_same(std::string_view command) {
  constexpr std::array<std::string_view, 7> kSame = {"memory", "inspect", "config",    "simulate",
                                                     "plan",   "fit",     "completion"};
  return std::find(kSame.begin(), kSame.end(), command) != kSame.end();
}

// What is neither trained nor read from a configuration.
bool takes_keys(const ::CLI::App& command) {
  constexpr std::array<std::string_view, 9> kWithout = {"doctor", "completion", "man",    "tokenize", "comm",
                                                        "gemm",   "attention",  "reduce", "plans"};
  const auto without = [&](const ::CLI::App& app) {
    return std::find(kWithout.begin(), kWithout.end(), app.get_name()) != kWithout.end();
  };
  const std::vector<::CLI::App*> of = command.get_subcommands();
  return !without(command) && (of.empty() || !without(*of.front()));
}

// Keys are known, whatever the command makes of them, and have a place in it.
void check_keys(const ::CLI::App& command, const std::vector<std::string>& settings) {
  // Where several processes load a configuration, the command chooses which of them reports.
  if (launched_processes() > 1 && takes_keys(command)) return;
  train::check_names(settings);
  if (settings.empty() || takes_keys(command)) return;
  std::string name = command.get_name();
  for (const ::CLI::App* of : command.get_subcommands()) name += " " + of->get_name();
  refuse("trireme {} has no configuration, and --{} no place in it; leave it out", name, settings.front());
}

// A file that is opened while one of them is closed would take its number, and what is printed would go into it.
void open_standard_streams() {
  int file = ::open("/dev/null", O_RDWR);
  while (file >= STDIN_FILENO && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) ::close(file);
}

}  // namespace

int cli_main(int argc, char** argv, const train::Registry& registry) {
  open_standard_streams();
  report_lost_files();
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "trireme";
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  Context context;
  context.registry = &registry;
  if (argc > 0) context.program = argv[0];
  context.command_line = shell_word(program);
  for (const std::string& argument : arguments) context.command_line += " " + shell_word(argument);
  ::CLI::App app("Trireme trains models that are too large, or too slow, for one device.", program);
  app.set_version_flag("--version", fmt::format("trireme {}", version()));
  app.footer(kFooter);
  app.require_subcommand(1);
  CLI::App commands(app);
  context.commands = &commands;
  add_train(commands, context);
  add_generate(commands, context);
  add_import(commands, context);
  add_export(commands, context);
  add_compress(commands, context);
  add_search(commands, context);
  add_eval(commands, context);
  add_memory(commands, context);
  add_inspect(commands, context);
  add_simulate(commands, context);
  add_plan(commands, context);
  add_fit(commands, context);
  add_calibrate(commands, context);
  add_bench(commands, context);
  add_tokenize(commands, context);
  add_config(commands, context);
  add_lesson(commands, context);
  add_doctor(commands, context);
  add_completion(commands, context);
  point_to_keys(app);
  allocate_within_limits();
  bool understood = false;
  try {
    if (arguments.empty()) {
      say(stdout, wrapped_help(app.help(), help_width()));
      return settle_output(0);
    }
    check_values(app, arguments);
    context.overrides = train::take_overrides(arguments, options_of(app, arguments.front()));
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
    app.parse(reversed);
    const std::string command = app.get_subcommands().front()->get_name();
    check_keys(*app.get_subcommands().front(), context.overrides);
    if (!is_first_process() && says_the_same(command)) return 0;
    // Each of them would do all of it, and write the same files.
    if (launched_processes() > 1 && !runs_on_several(command))
      refuse("trireme {} is one process, and {} has started {}; leave the launcher out", command,
             comm::mpi::launched()->launcher, launched_processes());
    understood = true;
    return settle_output(context.run());
  } catch (const ::CLI::Success& e) {
    if (const auto message = unknown_command(app, arguments))  // which has no help
      return report_from_one(Error(Error::Kind::request, *message));
    if (!is_first_process()) return 0;
    std::ostringstream text;  // of --help and --version
    const int code = app.exit(e, text, text);
    say(stdout, wrapped_help(text.str(), help_width()));
    return settle_output(code);
  } catch (const ::CLI::ParseError& e) {
    return report_from_one(Error(Error::Kind::request, explain(app, e, arguments)));
  } catch (const Error& e) {
    return understood ? report(e) : report_from_one(e);
  } catch (const std::bad_alloc&) {
    return report(Error(Error::Kind::failure, "out of memory"));
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) return report(Error(Error::Kind::failure, e.what()));
    return report(Error(Error::Kind::failure,
                        "cannot start a thread: the system has no room for more (ulimit -u, -v and "
                        "-d say how much this process may have)"));
  } catch (const std::exception& e) {
    return report(Error(Error::Kind::failure, e.what()));
  }
}

}  // namespace trireme::cli
