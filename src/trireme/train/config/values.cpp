#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/utf8.h"
#include "trireme/train/config/keys.h"

namespace trireme::train {
namespace {

template <class T>
constexpr bool kNumeric = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>;

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      result += c;
  }
  return result + "\"";
}

std::string number(double value) {
  std::string result = fmt::format("{}", value);
  if (result.find_first_of(".en") == std::string::npos) result += ".0";
  return result;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit + 1 < units.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("\"{}{}\"", bytes, units[unit]);
}

std::string duration_text(double seconds) {
  if (seconds != 0 && std::fmod(seconds, 3600) == 0) return fmt::format("\"{}h\"", seconds / 3600);
  if (seconds != 0 && std::fmod(seconds, 60) == 0) return fmt::format("\"{}min\"", seconds / 60);
  return fmt::format("\"{}s\"", seconds);
}

std::string list_text(const auto& items, auto&& one) {
  std::string result;
  for (const auto& item : items) result += (result.empty() ? "" : ", ") + one(item);
  return "[" + result + "]";
}

bool in_range(const Rule& rule, double value) {
  return std::isfinite(value) && (rule.above_low ? value > rule.low : value >= rule.low) &&
         (rule.below_high ? value < rule.high : value <= rule.high);
}

std::string range_text(const Rule& rule, const std::string& noun, const std::string& article) {
  const bool low = std::isfinite(rule.low);
  if (low && std::isfinite(rule.high))
    return fmt::format("{} {} from {} to {}{}", article, noun, rule.low, rule.below_high ? "below " : "", rule.high);
  if (low && rule.above_low && rule.low == 0) return "a positive " + noun;
  if (low) return fmt::format("{} {} {} {}", article, noun, rule.above_low ? "above" : "of at least", rule.low);
  return article + " " + noun;
}

std::optional<double> parse_number(std::string_view text) {
  text = trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_choice(const Rule& rule, std::string_view text) {
  const std::vector<std::string_view> names(rule.choices.begin(), rule.choices.end());
  return find_name(names, text).has_value();
}

// A configuration is TOML, and TOML is UTF-8: a name that is not could not be read back.
void check_utf8(const Key& key, std::string_view text) {
  if (data::valid_utf8(text) == text.size()) return;
  std::string shown;
  for (const char c : text)
    shown += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                  : fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  refuse("{} = \"{}\" is not UTF-8, and a configuration cannot hold it; name the file otherwise, or a link to it",
         key.name, shown);
}

// A choice as it can be given: with a number in the place of its argument's name.
std::string given_example(const std::string& choice) {
  const std::size_t colon = choice.find(':');
  const std::string argument = colon == std::string::npos ? "" : choice.substr(colon + 1);
  const std::string name = choice.substr(0, colon);
  if (argument == "GROUP") return name + ":64";
  if (argument == "FRACTION") return name + (name == "wsd" ? ":0.2" : ":0.01");
  return argument == "K" || argument == "V" || argument == "RANK" || argument == "S" ? name + ":2" : choice;
}

// What the argument of a choice may be, where the name before it is right: "topk:2".
std::string argument_rule(const Rule& rule, std::string_view given) {
  for (const std::string& choice : rule.choices) {
    const std::size_t colon = choice.find(':');
    if (colon == std::string::npos || !given.starts_with(choice.substr(0, colon + 1))) continue;
    const std::string argument = choice.substr(colon + 1);
    if (argument == "PATH" || argument.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos) continue;
    if (argument == "FRACTION") return "; FRACTION is above 0 and at most 1";
    return fmt::format("; {} is a whole number of at least {}", argument, argument == "S" ? 0 : 1);
  }
  return {};
}

[[noreturn]] void mismatch(const Key& key, const Raw& raw) {
  std::string near;
  std::string given;
  if (const auto* text = std::get_if<std::string>(&raw.value)) given = *text;
  // A list where text with commas is expected.
  if (const auto* list = std::get_if<Raw::List>(&raw.value))
    for (const Raw& item : *list)
      if (const auto* word = std::get_if<std::string>(&item.value)) given += (given.empty() ? "" : ",") + *word;
  if (const auto best = given.empty() ? std::nullopt : meant_value(key, given); best && *best != given)
    near = fmt::format("; did you mean \"{}\"?", given_example(*best));
  if (const std::string rule = argument_rule(key.rule, given); !rule.empty()) near = rule;
  if (near.empty() && key.rule.fault != nullptr && !given.empty()) near = key.rule.fault(given);
  refuse("{} must be {}, got {}{}", key.name, expectation(key), raw.shown(), near);
}

std::optional<double> as_number(const Raw& raw) {
  if (const auto* integer = std::get_if<std::int64_t>(&raw.value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&raw.value)) return *real;
  return std::nullopt;
}

std::optional<std::int64_t> as_integer(const Raw& raw) {
  if (const auto* integer = std::get_if<std::int64_t>(&raw.value)) return *integer;
  // 1e6 is a whole number too.
  const auto* real = std::get_if<double>(&raw.value);
  if (real == nullptr || *real != std::floor(*real) || std::abs(*real) > 0x1p53) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

Raw scalar_from_text(std::string_view text) {
  text = trim(text);
  if (text == "true") return {true};
  if (text == "false") return {false};
  std::int64_t integer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (!text.empty() && error == std::errc() && end == text.data() + text.size()) return {integer};
  if (const auto real = parse_number(text)) return {*real};
  return {std::string(text)};
}

struct Assign {
  const Key& key;
  const Raw& raw;

  template <class T>
  const T& get() const {
    const auto* value = std::get_if<T>(&raw.value);
    if (value == nullptr) mismatch(key, raw);
    return *value;
  }

  void operator()(std::int64_t* out) const {
    const auto value = as_integer(raw);
    if (!value || !in_range(key.rule, static_cast<double>(*value))) mismatch(key, raw);
    *out = *value;
  }
  void operator()(double* out) const {
    const auto value = as_number(raw);
    if (!value || !in_range(key.rule, *value)) mismatch(key, raw);
    *out = *value;
  }
  void operator()(bool* out) const { *out = get<bool>(); }
  void operator()(std::optional<bool>* out) const {
    if (const auto* word = std::get_if<std::string>(&raw.value); word != nullptr && *word == "auto")
      out->reset();
    else
      *out = get<bool>();
  }
  void operator()(std::string* out) const {
    const auto& value = get<std::string>();
    check_utf8(key, value);
    if (!key.rule.choices.empty() && !is_choice(key.rule, value)) mismatch(key, raw);
    if (key.rule.valid != nullptr && !key.rule.valid(value)) mismatch(key, raw);
    *out = value;
  }
  void operator()(std::vector<std::string>* out) const {
    if (const auto* one = std::get_if<std::string>(&raw.value)) {
      check_utf8(key, *one);
      out->clear();
      if (!one->empty()) out->push_back(*one);
      return;
    }
    std::vector<std::string> values;
    for (const Raw& item : get<Raw::List>()) {
      const auto* value = std::get_if<std::string>(&item.value);
      if (value == nullptr || value->empty()) mismatch(key, raw);
      check_utf8(key, *value);
      values.push_back(*value);
    }
    *out = std::move(values);
  }
  void operator()(std::vector<std::int64_t>* out) const {
    std::vector<std::int64_t> values;
    for (const Raw& item : get<Raw::List>()) {
      const auto value = as_integer(item);
      if (!value || !in_range(key.rule, static_cast<double>(*value))) mismatch(key, raw);
      values.push_back(*value);
    }
    *out = std::move(values);
  }
  void operator()(std::array<double, 2>* out) const {
    const auto& list = get<Raw::List>();
    if (list.size() != 2) mismatch(key, raw);
    std::array<double, 2> values{};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto value = as_number(list[i]);
      if (!value || !in_range(key.rule, *value)) mismatch(key, raw);
      values[i] = *value;
    }
    *out = values;
  }
  void operator()(const ChoiceField& out) const {
    const auto& value = get<std::string>();
    check_utf8(key, value);
    if (!out.assign(out.choice, value)) mismatch(key, raw);
  }
  void operator()(OffloadSet* out) const {
    const auto value = OffloadSet::parse(get<std::string>());
    if (!value) mismatch(key, raw);
    *out = *value;
  }
  void operator()(Bytes* out) const {
    const auto count = as_integer(raw);
    if (!count && get<std::string>().empty()) {
      out->count = 0;
      return;
    }
    const auto value = count ? *count < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*count))
                             : parse_bytes(get<std::string>());
    if (!value || !in_range(key.rule, static_cast<double>(*value))) mismatch(key, raw);
    out->count = *value;
  }
  void operator()(AutoBytes* out) const {
    const auto& text = get<std::string>();
    const auto value = text == "auto" ? std::nullopt : parse_bytes(text);
    if (!value && text != "auto") mismatch(key, raw);
    out->size = value ? std::optional<Bytes>(*value) : std::nullopt;
  }
  void operator()(Seconds* out) const { out->count = seconds(); }
  void operator()(Interval* out) const {
    auto steps = as_integer(raw);
    // In code an interval is text, and then a number is one of steps too.
    if (const auto* text = std::get_if<std::string>(&raw.value)) steps = as_integer(scalar_from_text(*text));
    if (steps) {
      if (*steps < 0) mismatch(key, raw);
      *out = {*steps, 0};
    } else {
      *out = {0, seconds()};
    }
  }
  void operator()(std::map<std::string, std::string>* out) const {
    for (const auto& [name, item] : get<Raw::Table>()) {
      const auto* value = std::get_if<std::string>(&item.value);
      if (value == nullptr) refuse("{}.\"{}\" must be text such as \"out:tp\", got {}", key.name, name, item.shown());
      (*out)[name] = *value;
    }
  }

 private:
  double seconds() const {
    if (const auto count = as_number(raw); count && std::isfinite(*count) && *count >= 0) return *count;
    const auto& text = get<std::string>();
    const auto value = text.empty() ? 0 : parse_duration(text);
    if (!value) mismatch(key, raw);
    return *value;
  }
};

std::string unquoted(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// Parts between commas, except those inside quotes: "a,b.txt",c.txt has two.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts(1);
  char quote = '\0';
  for (const char c : text) {
    const bool starts = quote == '\0' && trim(parts.back()).empty();
    if (quote != '\0' ? c == quote : starts && (c == '"' || c == '\'')) quote = quote != '\0' ? '\0' : c;
    if (c == ',' && quote == '\0')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace

std::string Raw::shown() const {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
        if constexpr (kNumeric<T>) return fmt::format("{}", v);
        if constexpr (std::is_same_v<T, std::string>) return in_quotes(v);
        if constexpr (std::is_same_v<T, List>) return list_text(v, [](const Raw& item) { return item.shown(); });
        return "a table";
      },
      value);
}

void assign(const Key& key, const Raw& raw) { std::visit(Assign{key, raw}, key.field); }

Raw from_text(const Key& key, std::string_view text) {
  return std::visit(
      [&](auto field) -> Raw {
        using T = std::remove_pointer_t<decltype(field)>;
        constexpr bool words = std::is_same_v<T, std::vector<std::string>>;
        if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, ChoiceField> ||
                      std::is_same_v<T, OffloadSet> || std::is_same_v<T, AutoBytes>)
          return {unquoted(text)};
        if constexpr (words || std::is_same_v<T, std::vector<std::int64_t>> ||
                      std::is_same_v<T, std::array<double, 2>>) {
          std::string_view inside = trim(text);
          if (inside.starts_with('[') && inside.ends_with(']')) inside = inside.substr(1, inside.size() - 2);
          Raw::List list;
          for (const std::string& part : split_list(inside))
            if (!trim(part).empty()) list.push_back(words ? Raw{unquoted(part)} : scalar_from_text(part));
          return {std::move(list)};
        }
        return scalar_from_text(unquoted(text));
      },
      key.field);
}

namespace {

// A value as TOML.
struct Print {
  std::string operator()(const std::int64_t* v) const { return fmt::format("{}", *v); }
  std::string operator()(const double* v) const { return number(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::optional<bool>* v) const { return *v ? (**v ? "true" : "false") : "\"auto\""; }
  std::string operator()(const std::string* v) const { return in_quotes(*v); }
  std::string operator()(const std::vector<std::string>* v) const { return list_text(*v, in_quotes); }
  std::string operator()(const std::vector<std::int64_t>* v) const {
    return list_text(*v, [](std::int64_t i) { return fmt::format("{}", i); });
  }
  std::string operator()(const std::array<double, 2>* v) const { return list_text(*v, number); }
  std::string operator()(const Bytes* v) const { return v->count == 0 ? "\"\"" : size_text(v->count); }
  std::string operator()(const AutoBytes* v) const { return v->automatic() ? "\"auto\"" : size_text(v->size->count); }
  std::string operator()(const Seconds* v) const { return v->count == 0 ? "\"\"" : duration_text(v->count); }
  std::string operator()(const Interval* v) const {
    return v->seconds != 0 ? duration_text(v->seconds) : fmt::format("{}", v->steps);
  }
  std::string operator()(const OffloadSet* v) const { return in_quotes(v->text()); }
  std::string operator()(const ChoiceField& v) const { return in_quotes(v.text(v.choice)); }
  std::string operator()(const std::map<std::string, std::string>* v) const {
    std::string lines;
    for (const auto& [name, value] : *v) lines += fmt::format("{} = {}\n", in_quotes(name), in_quotes(value));
    return lines;
  }
};

// What a type takes, where the rule has no words of its own.
struct Expect {
  const Rule& rule;

  std::string operator()(const std::int64_t* /*v*/) const { return range_text(rule, "integer", "an"); }
  std::string operator()(const double* /*v*/) const { return range_text(rule, "number", "a"); }
  std::string operator()(const bool* /*v*/) const { return "true or false"; }
  std::string operator()(const std::optional<bool>* /*v*/) const { return "true, false or \"auto\""; }
  std::string operator()(const std::string* /*v*/) const { return "text"; }
  std::string operator()(const std::vector<std::string>* /*v*/) const { return "a path or a list of paths"; }
  std::string operator()(const std::vector<std::int64_t>* /*v*/) const { return "a list of integers of at least 1"; }
  std::string operator()(const std::array<double, 2>* /*v*/) const { return "two numbers from 0 to below 1"; }
  std::string operator()(const Bytes* /*v*/) const {
    return rule.above_low ? "a size above 0 such as \"8GiB\", or \"\" for no limit" : "a size such as \"25MiB\"";
  }
  std::string operator()(const AutoBytes* /*v*/) const { return "auto or a size such as 64MiB"; }
  std::string operator()(const Seconds* /*v*/) const { return "a time such as \"3h50m\" or \"60s\""; }
  std::string operator()(const Interval* /*v*/) const { return "a number of steps or a time such as \"10min\""; }
  std::string operator()(const OffloadSet* /*v*/) const {
    return "none, all, or some of activations,weights,optimizer";
  }
  std::string operator()(const ChoiceField& /*v*/) const { return "a name"; }
  std::string operator()(const std::map<std::string, std::string>* /*v*/) const { return "a table of text"; }
};

}  // namespace

std::string to_text(const Key& key) { return std::visit(Print{}, key.field); }

std::string in_one_line(std::string value) {
  if (!value.ends_with('\n')) return value;
  value.pop_back();
  return fmt::format("{{{}}}", fmt::join(split(value, '\n'), ", "));
}

std::string expectation(const Key& key) {
  if (!key.rule.choices.empty()) return fmt::format("one of {}", fmt::join(key.rule.choices, ", "));
  if (key.rule.valid != nullptr) return std::string(key.rule.expects);
  return std::visit(Expect{key.rule}, key.field);
}

}  // namespace trireme::train
