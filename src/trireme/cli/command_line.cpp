#include "trireme/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "trireme/core/text.h"

namespace trireme::cli::CLI {
namespace {

CommandInfo described(const ::CLI::App& app) {
  CommandInfo info{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const ::CLI::Option* option : app.get_options())
    info.options.push_back({option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames().front(),
                            option->get_description(), option->get_items_expected_max() == 0});
  for (const ::CLI::App* command : app.get_subcommands({})) info.commands.push_back(described(*command));
  return info;
}

template <class T>
std::string default_text(const T& value) {
  if constexpr (std::is_signed_v<T>)
    return value < T{} ? "" : fmt::format("{}", value);
  else if constexpr (std::is_arithmetic_v<T>)
    return fmt::format("{}", value);
  else if constexpr (std::is_same_v<T, std::filesystem::path>)
    return value.string();
  else
    return value;
}
template <class T>
std::string default_text(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(default_text(value));
  return fmt::format("{}", fmt::join(texts, ","));
}
template <class T>
std::string default_text(const std::optional<T>& /*value*/) {
  return {};
}

// What a value is now is the default, unless the text has the word itself; below zero, or empty, it stands for
// something else.
std::string with_default(const std::string& help, const std::string& text) {
  return text.empty() || help.find("default") != std::string::npos ? help : fmt::format("{} (default {})", help, text);
}

}  // namespace

Validator::Validator(std::function<std::string(std::string&)> check, const std::string& type)
    : Validator(::CLI::Validator(std::move(check), type)) {}

Validator::Validator(const ::CLI::Validator& validator)
    : validator_(std::make_shared<const ::CLI::Validator>(validator)) {}

template <class T>
Validator Range(T least, T largest) {
  return Validator(::CLI::Range(least, largest));
}
template Validator Range(int, int);
template Validator Range(std::int64_t, std::int64_t);
template Validator Range(double, double);

Validator IsMember(const std::vector<std::string>& words) {
  const auto check = [words](std::string& given) -> std::string {
    if (std::find(words.begin(), words.end(), given) != words.end()) return {};
    const std::optional<std::string> near = nearest(given, words);
    return fmt::format("'{}' is none of {}{}", given, fmt::join(words, ", "),
                       near ? fmt::format("; did you mean '{}'?", *near) : "");
  };
  return {check, fmt::format("{{{}}}", fmt::join(words, ","))};
}

Option* Option::check(const Validator& validator) {
  option_->check(validator.get());
  return this;
}

Option* Option::delimiter(char separator) {
  option_->delimiter(separator);
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

// The help says it: see add_option.
Option* Option::capture_default_str() { return this; }

App* App::add_subcommand(const std::string& name, const std::string& help) {
  commands_.push_back(std::make_unique<App>(*app_->add_subcommand(name, help)));
  return commands_.back().get();
}

template <class T>
Option* App::add_option(const std::string& name, T& value, const std::string& help) {
  return keep(app_->add_option(name, value, with_default(help, default_text(value))));
}
template Option* App::add_option(const std::string&, std::string&, const std::string&);
template Option* App::add_option(const std::string&, int&, const std::string&);
template Option* App::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* App::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* App::add_option(const std::string&, float&, const std::string&);
template Option* App::add_option(const std::string&, double&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option* App::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<int>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<double>&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* App::add_option(const std::string&, std::filesystem::path&, const std::string&);
template Option* App::add_option(const std::string&, std::vector<std::filesystem::path>&, const std::string&);

Option* App::add_flag(const std::string& name, bool& value, const std::string& help) {
  return keep(app_->add_flag(name, value, help));
}

App* App::footer(const std::string& text) {
  app_->footer(text);
  return this;
}

App* App::callback(std::function<void()> call) {
  app_->callback(std::move(call));
  return this;
}

App* App::require_subcommand(int count) {
  app_->require_subcommand(count);
  return this;
}

CommandInfo App::describe() const { return described(*app_); }

Option* App::keep(::CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

}  // namespace trireme::cli::CLI
