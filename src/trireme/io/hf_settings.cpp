#include "trireme/io/hf_settings.h"

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/io/safetensors_header.h"

namespace trireme::io {
namespace {

// A value for a message: short, on one line.
std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return for_message(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return fmt::format("{}", value.get<double>());
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  constexpr std::size_t kShown = 60;
  if (text.size() > kShown) text = text.substr(0, kShown) + "…";
  return text;
}

}  // namespace

const nlohmann::json* HfSettings::find(std::string_view key) const {
  seen_.insert(std::string(key));
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void HfSettings::mismatch(std::string_view key, std::string_view expected) const {
  refuse("{}: {}{} must be {}, got {}", where_, prefix_, key, expected, shown(*find(key)));
}

void HfSettings::refuse_value(std::string_view key, const std::string& why) const {
  const nlohmann::json* value = find(key);
  refuse("{}: {}{} {}: {}", where_, prefix_, key, value == nullptr ? "is absent" : "= " + shown(*value), why);
}

template <class T, class Read>
T HfSettings::first(std::initializer_list<std::string_view> keys, T absent, const Read& read) const {
  std::string_view from;
  T value = absent;
  for (const std::string_view key : keys) {
    const nlohmann::json* given = find(key);
    if (given == nullptr) continue;
    const T other = read(key, *given);
    if (!from.empty() && other != value)
      refuse("{}: {}{} = {} and {}{} = {} contradict each other", where_, prefix_, from, shown(*find(from)), prefix_,
             key, shown(*given));
    if (from.empty()) from = key;
    value = other;
  }
  return value;
}

std::int64_t HfSettings::size(std::initializer_list<std::string_view> keys, std::int64_t absent) const {
  return first(keys, absent, [this](std::string_view key, const nlohmann::json& value) {
    constexpr std::int64_t kMax = 0x7fffffff;
    const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= 1 && value.get<std::int64_t>() <= kMax;
    // Numbers above the signed range wrap to negative ones, which do not fit either.
    if (!fits) mismatch(key, fmt::format("an integer from 1 to {}", kMax));
    return value.get<std::int64_t>();
  });
}

double HfSettings::positive(std::initializer_list<std::string_view> keys, double absent) const {
  return first(keys, absent, [this](std::string_view key, const nlohmann::json& value) {
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>()))
      mismatch(key, "a positive number");
    return value.get<double>();
  });
}

double HfSettings::number(std::string_view key, double absent) const {
  return first({key}, absent, [this](std::string_view name, const nlohmann::json& value) {
    if (!value.is_number()) mismatch(name, "a number");
    return value.get<double>();
  });
}

bool HfSettings::flag(std::string_view key, bool absent) const {
  return first({key}, absent, [this](std::string_view name, const nlohmann::json& value) {
    if (!value.is_boolean()) mismatch(name, "true or false");
    return value.get<bool>();
  });
}

std::string HfSettings::text(std::string_view key, const std::string& absent) const {
  return first({key}, absent, [this](std::string_view name, const nlohmann::json& value) {
    if (!value.is_string()) mismatch(name, "text");
    return value.get<std::string>();
  });
}

HfSettings HfSettings::inside(std::string_view key) const {
  static const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json* value = find(key);
  if (value != nullptr && !value->is_object()) mismatch(key, "an object");
  return {value == nullptr ? none : *value, where_, prefix_ + std::string(key) + "."};
}

void HfSettings::must_be(std::string_view key, bool value) const {
  if (flag(key, value) != value) refuse_value(key, fmt::format("not computed by this version (only {} is)", value));
}

void HfSettings::must_be_empty(std::string_view key, std::string_view why) const {
  const nlohmann::json* value = find(key);
  const bool empty = value == nullptr || (value->is_structured() && value->empty()) ||
                     (value->is_string() && value->get_ref<const std::string&>().empty());
  if (!empty) refuse("{}: {}{} is given: {}", where_, prefix_, key, why);
}

std::vector<std::string> HfSettings::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !seen_.contains(key)) keys.push_back(prefix_ + key);
  return keys;
}

}  // namespace trireme::io
