#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class ParseError;
class Validator;
}  // namespace CLI

// What commands use of CLI11, under its names. CLI11 is a library of headers that takes longer to compile than most
// commands: command_line.cpp and cli.cpp alone include it.
namespace trireme::cli::CLI {

// What is wrong with a command line, in the words of this program: "--from was given twice; give it once". CLI11's own
// are those of its authors.
std::string plain_words(const ::CLI::ParseError& error, const ::CLI::App& app);

// A condition on the text of a value: empty where it is met, else what is wrong ("must be …, got …" where that can be
// said of the option). `type` is what help calls such a value; "": as without.
class Validator {
 public:
  Validator(std::function<std::string(std::string&)> check, std::string type);
  const ::CLI::Validator& get() const { return *validator_; }
  const std::string& type() const { return type_; }

 private:
  std::shared_ptr<const ::CLI::Validator> validator_;
  std::string type_;
};

template <class T>
Validator Range(T least, T largest);  // of int, std::int64_t, std::uint64_t, double
Validator IsMember(const std::vector<std::string>& words);

class Option {
 public:
  explicit Option(::CLI::Option* option) : option_(option) {}
  Option* check(const Validator& validator);
  Option* delimiter(char separator);
  Option* required();
  Option* capture_default_str();
  ::CLI::Option& get() { return *option_; }

 private:
  ::CLI::Option* option_;
};

// What a command is called and takes, for its man page and for shells.
struct OptionInfo {
  std::string name;  // "--steps", or of an argument without dashes "config"
  std::string help;
  bool flag = false;  // takes no value
};
struct CommandInfo {
  std::string name;
  std::string help;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

// A command with its options and subcommands. What it returns lives as long as it does.
class App {
 public:
  explicit App(::CLI::App& app) : app_(&app) {}
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  App* add_subcommand(const std::string& name, const std::string& help);
  // T: one of the types that command_line.cpp lists.
  template <class T>
  Option* add_option(const std::string& name, T& value, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  App* footer(const std::string& text);
  App* callback(std::function<void()> call);
  App* require_subcommand(int count);
  CommandInfo describe() const;

 private:
  Option* keep(::CLI::Option* option);

  ::CLI::App* app_;
  std::vector<std::unique_ptr<App>> commands_;
  std::vector<std::unique_ptr<Option>> options_;
};

}  // namespace trireme::cli::CLI
