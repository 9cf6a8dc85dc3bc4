#pragma once
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// A text as one of several names, of which some carry an argument ("wsd:FRACTION"): FRACTION is above 0 and at most 1,
// S a whole number of at least 0, another word in capitals a whole number of at least 1. "file:PATH" takes any text
// after the colon, and a name that is "PATH" takes what no name before it does.
struct NamedValue {
  std::size_t index = 0;  // into the names
  double argument = 0;
  std::string path = {};
};
std::optional<NamedValue> find_name(std::span<const std::string_view> names, std::string_view text);
std::string text_of(std::span<const std::string_view> names, const NamedValue& value);
// Reports a bug: code used a text that is none of the names.
[[noreturn]] void no_such_name(std::span<const std::string_view> names, std::string_view text);

// The value of a setting whose values have names: an enumerator, and the argument that its name carries. options.def
// declares `E` and its names, which value_names(E) gives.
//
//   Choice<Schedule> schedule = "wsd:0.2";   // schedule == Schedule::wsd, schedule.argument() == 0.2
//
// Text is checked when it becomes a Choice and is not compared with afterwards.
template <class E>
class Choice {
 public:
  Choice(E kind) : kind_(kind) {}
  Choice(std::string_view text) {
    const auto found = parse(text);
    if (!found) no_such_name(names(), text);
    *this = *found;
  }
  Choice(const std::string& text) : Choice(std::string_view(text)) {}
  Choice(const char* text) : Choice(std::string_view(text)) {}

  // Nothing when the text is none of the names.
  static std::optional<Choice> parse(std::string_view text) {
    const auto found = find_name(names(), text);
    if (!found) return std::nullopt;
    Choice choice(static_cast<E>(found->index));
    choice.argument_ = found->argument;
    choice.path_ = found->path;
    return choice;
  }
  static std::span<const std::string_view> names() {
    static constexpr auto all = value_names(E{});
    return all;
  }

  E kind() const { return kind_; }
  double argument() const { return argument_; }
  const std::string& path() const { return path_; }
  std::string text() const { return text_of(names(), {static_cast<std::size_t>(kind_), argument_, path_}); }

  friend bool operator==(const Choice&, const Choice&) = default;
  friend bool operator==(const Choice& a, E kind) { return a.kind_ == kind; }
  friend bool operator==(const Choice&, const char*) = delete;
  friend bool operator==(const Choice&, std::string_view) = delete;

 private:
  E kind_{};
  double argument_ = 0;
  std::string path_;
};

}  // namespace trireme

template <class E>
struct fmt::formatter<trireme::Choice<E>> : fmt::formatter<std::string> {
  auto format(const trireme::Choice<E>& choice, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(choice.text(), context);
  }
};
