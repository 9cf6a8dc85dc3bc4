#include "trireme/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
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
  texts.reserve(values.size());
  for (const T& value : values) texts.push_back(default_text(value));
  return fmt::format("{}", fmt::join(texts, ","));
}
template <class T>
std::string default_text(const std::optional<T>& /*value*/) {
  return {};
}

// What a value is now is the default, unless the text has the word itself; below zero, or empty, it stands for
// something else, and zero does where the text does not say what it means.
std::string with_default(const std::string& help, const std::string& text) {
  const bool said = text.empty() || help.find("default") != std::string::npos;
  return said || (text == "0" && help.find("0:") == std::string::npos) ? help
                                                                       : fmt::format("{} (default {})", help, text);
}

template <class T>
struct Element {
  using Type = T;
};
template <class T>
struct Element<std::optional<T>> {
  using Type = T;
};
template <class T>
struct Element<std::vector<T>> {
  using Type = T;
};

constexpr const char* kWhole = "N";
constexpr const char* kNumber = "NUMBER";

// What help says that a value is; CLI11 has INT, UINT and FLOAT.
template <class T>
constexpr const char* type_name() {
  return std::is_integral_v<T> ? kWhole : kNumber;
}

template <class T>
std::string range_text(T least, T largest) {
  return fmt::format("from {} to {}", least, largest);
}

template <class T>
bool is_number(const std::string& text, T least, T largest) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && value >= least && value <= largest;
}

// CLI11 takes a number that is too large for the largest one that there is.
template <class T>
Validator representable() {
  using Limits = std::numeric_limits<T>;
  const auto check = [](const std::string& given) -> std::string {
    errno = 0;
    const long long value = std::strtoll(given.c_str(), nullptr, 0);
    if (errno != ERANGE && value >= Limits::min() && value <= Limits::max()) return {};
    return fmt::format("must be a whole number of at {}, got {}",
                       value < 0 ? fmt::format("least {}", Limits::min()) : fmt::format("most {}", Limits::max()),
                       given);
  };
  return {check, ""};
}

const ::CLI::Option* option_of(const ::CLI::App& app, const std::string& name) {
  const ::CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return command->get_option_no_throw(name);
}

// CLI11: "Could not convert: --steps = blah".
std::string not_converted(const ::CLI::App& app, const std::string& name, const std::string& value) {
  const ::CLI::Option* option = option_of(app, name);
  if (option != nullptr && option->get_items_expected_max() == 0)
    return fmt::format("{} is a flag and takes no value; leave out \"={}\"", name, value);
  const bool whole =
      option != nullptr && option->get_type_name().starts_with(kWhole) && !option->get_type_name().starts_with(kNumber);
  return fmt::format("{} must be {}, got {}", name, whole ? "a whole number" : "a number", value);
}

std::string missing_command(const ::CLI::App& app) {
  const ::CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> names;
  for (const ::CLI::App* one : command->get_subcommands({})) names.push_back(one->get_name());
  return fmt::format("{} needs one of {}", command->get_name(), fmt::join(names, ", "));
}

}  // namespace

std::string plain_words(const ::CLI::ParseError& error, const ::CLI::App& app) {
  std::string message = error.what();
  while (!message.empty() && message.back() == '\n') message.pop_back();
  const std::string kind = error.get_name();
  if (kind == "RequiredError" && message == "A subcommand is required") return missing_command(app);
  const std::size_t colon = message.find(": ");
  if (colon == std::string::npos) return message;
  const std::string name = message.substr(0, colon), rest = message.substr(colon + 2);
  if (kind == "ArgumentMismatch") {
    const std::size_t count = rest.find("required but received ");
    if (!rest.starts_with("At Most 1 ") || count == std::string::npos) return name + " needs a value";
    const std::string times = rest.substr(count + std::string_view("required but received ").size());
    return fmt::format("{} was given {}; give it once", name, times == "2" ? "twice" : times + " times");
  }
  if (kind == "ConversionError" && name == "Could not convert")
    if (const std::size_t equals = rest.find(" = "); equals != std::string::npos)
      return not_converted(app, rest.substr(0, equals), rest.substr(equals + 3));
  if (kind == "ConversionError") return not_converted(app, name, "…");
  // "must be …" is said of the option.
  return rest.starts_with("must ") ? name + " " + rest : message;
}

Validator::Validator(std::function<std::string(std::string&)> check, std::string type)
    : validator_(std::make_shared<const ::CLI::Validator>(std::move(check), "")), type_(std::move(type)) {}

template <class T>
Validator Range(T least, T largest) {
  const auto check = [=](const std::string& given) -> std::string {
    if (is_number(given, least, largest)) return {};
    return fmt::format("must be a {}number {}, got {}", std::is_integral_v<T> ? "whole " : "",
                       range_text(least, largest), given);
  };
  return {check, fmt::format("{} {}", type_name<T>(), range_text(least, largest))};
}
template Validator Range(int, int);
template Validator Range(std::int64_t, std::int64_t);
template Validator Range(std::uint64_t, std::uint64_t);
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
  if (!validator.type().empty()) option_->type_name(validator.type());
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
  using Type = typename Element<T>::Type;
  Option* option = keep(app_->add_option(name, value, with_default(help, default_text(value))));
  // CLI11 takes -1 for the largest number that there is.
  if constexpr (std::is_unsigned_v<Type>) option->check(Range(Type{0}, std::numeric_limits<Type>::max()));
  if constexpr (std::is_integral_v<Type> && std::is_signed_v<Type>) option->check(representable<Type>());
  if constexpr (std::is_arithmetic_v<Type>) option->get().type_name(type_name<Type>());
  return option;
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
