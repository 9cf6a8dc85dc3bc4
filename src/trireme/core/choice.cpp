#include "trireme/core/choice.h"

#include <charconv>
#include <cmath>

#include "trireme/core/error.h"

namespace trireme {
namespace {

constexpr std::string_view kPath = "PATH";

// "wsd:FRACTION" → "FRACTION"; "zero-bubble:auto" and "none" take no argument.
std::string_view argument_of(std::string_view name) {
  const std::string_view last = name.substr(name.find(':') == std::string_view::npos ? 0 : name.find(':') + 1);
  const bool capitals = last.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos;
  return capitals ? last : std::string_view();
}

std::optional<double> number(std::string_view text, std::string_view kind) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  const bool fits =
      kind == "FRACTION" ? value > 0 && value <= 1 : value == std::floor(value) && value >= (kind == "S" ? 0 : 1);
  return fits ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<NamedValue> find_name(std::span<const std::string_view> names, std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view kind = argument_of(names[i]);
    const std::string_view before = names[i].substr(0, names[i].size() - kind.size());
    if (kind.empty() ? text != before : !text.starts_with(before)) continue;
    if (kind.empty()) return NamedValue{.index = i};
    const std::string_view argument = text.substr(before.size());
    if (kind == kPath && !argument.empty()) return NamedValue{.index = i, .path = std::string(argument)};
    if (const auto value = kind == kPath ? std::nullopt : number(argument, kind))
      return NamedValue{.index = i, .argument = *value};
  }
  return std::nullopt;
}

std::string text_of(std::span<const std::string_view> names, const NamedValue& value) {
  const std::string_view name = names[value.index];
  const std::string_view kind = argument_of(name);
  std::string text(name.substr(0, name.size() - kind.size()));
  if (kind.empty()) return text;
  return text + (kind == kPath ? value.path : fmt::format("{}", value.argument));
}

void no_such_name(std::span<const std::string_view> names, std::string_view text) {
  fail("\"{}\" is none of {}", text, fmt::join(names, ", "));
}

}  // namespace trireme
