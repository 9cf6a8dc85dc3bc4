#include "trireme/train/config/keys.h"

#include <algorithm>
#include <charconv>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image_dataset.h"
#include "trireme/ir/axes.h"
#include "trireme/ir/mesh.h"
#include "trireme/passes/loss_scale.h"

namespace trireme::train {
namespace {

Rule any() { return {}; }
Rule positive() { return {.low = 0, .above_low = true}; }
Rule at_least(double low) { return {.low = low}; }
Rule between(double low, double high) { return {.low = low, .high = high}; }
// A size of something in memory: no product of a few of them overflows.
Rule dimension(double low) { return between(low, 0x7fffffff); }
Rule below(double low, double high) { return {.low = low, .high = high, .below_high = true}; }
Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule text(bool (*valid)(std::string_view), std::string_view expects) { return {.valid = valid, .expects = expects}; }

// Without the axis that may be anything, a mesh has no more ranks than there may be.
bool valid_mesh(std::string_view value) {
  const auto axes = parse_mesh_axes(value);
  if (!axes || trim(value).empty()) return false;
  std::vector<std::string> known;
  for (const auto& [name, extent] : *axes)
    if (extent > 0) known.push_back(fmt::format("{}={}", name, extent));
  try {
    ir::parse_mesh(fmt::format("{}", fmt::join(known, ",")));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What of a mesh is none, and what could be meant.
std::string mesh_fault(std::string_view value) {
  static const std::vector<std::string> axes(ir::kAxes.begin(), ir::kAxes.end());
  std::vector<std::string> before;
  for (const std::string& part : split(value, ',')) {
    const std::vector<std::string> pair = split(trim(part), '=');
    if (pair.size() != 2) return fmt::format("; \"{}\" is no axis with its number of ranks", trim(part));
    const std::string name(trim(pair[0])), size(trim(pair[1]));
    if (std::find(axes.begin(), axes.end(), name) == axes.end())
      return fmt::format("; there is no axis \"{}\", the axes are {}", name, fmt::join(axes, ", "));
    if (std::find(before.begin(), before.end(), name) != before.end())
      return fmt::format("; the axis {} is named twice", name);
    if (!size.empty() && size.find_first_not_of('0') == std::string::npos)
      return fmt::format("; an axis has one rank at least: {}=1, or leave {} out", name, name);
    before.push_back(name);
  }
  return "";
}

// "1GB/s,20us"
bool valid_link(std::string_view value) {
  if (value.empty()) return true;
  const std::vector<std::string> parts = split(value, ',');
  if (parts.size() != 2) return false;
  const std::string_view rate = trim(parts[0]);
  const auto bytes = rate.ends_with("/s") ? parse_bytes(rate.substr(0, rate.size() - 2)) : std::nullopt;
  return bytes && *bytes > 0 && parse_duration(parts[1]);
}

bool valid_augment(std::string_view value) { return value == "auto" || data::parse_augmentation(value).has_value(); }

// What is there is seen when it is opened: a name that is wrong is refused then.
bool valid_tokenizer(std::string_view value) { return !trim(value).empty(); }

// Rules of single keys.
Rule mesh() {
  Rule rule = text(valid_mesh, "\"auto\" or axes such as \"pp=2,dp=2,tp=2\" (pp, dp, tp, h, w; one may be \"*\")");
  rule.fault = mesh_fault;
  return rule;
}
Rule link() { return text(valid_link, "a rate and a latency such as \"1GB/s,20us\""); }
Rule augmentation() { return text(valid_augment, "auto, none, or some of crop,flip"); }
Rule tokenizer() { return text(valid_tokenizer, "\"bytes\", a tokenizer.json or a folder that holds one"); }
Rule loss_scale() { return between(passes::LossScale::kLowest, passes::LossScale::kHighest); }

template <class T>
Field field_of(T* value) {
  return value;
}
template <class E>
Field field_of(Choice<E>* value) {
  return ChoiceField{value,
                     [](void* choice, std::string_view text) {
                       const auto parsed = Choice<E>::parse(text);
                       if (parsed) *static_cast<Choice<E>*>(choice) = *parsed;
                       return parsed.has_value();
                     },
                     [](const void* choice) { return static_cast<const Choice<E>*>(choice)->text(); }};
}

}  // namespace

std::optional<std::vector<std::pair<std::string, std::int64_t>>> parse_mesh_axes(std::string_view value) {
  std::vector<std::pair<std::string, std::int64_t>> axes;
  if (value == "auto" || value.empty()) return axes;
  for (const std::string& part : split(value, ',')) {
    const std::string_view item = trim(part);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string name(trim(item.substr(0, equals)));
    const std::string_view size = trim(item.substr(equals + 1));
    std::int64_t extent = 0;
    if (size != "*") {
      const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), extent);
      if (error != std::errc() || end != size.data() + size.size() || extent < 1) return std::nullopt;
    }
    const bool repeated = std::any_of(axes.begin(), axes.end(),
                                      [&](const auto& a) { return a.first == name || (a.second == 0 && extent == 0); });
    if (repeated || std::find(ir::kAxes.begin(), ir::kAxes.end(), name) == ir::kAxes.end()) return std::nullopt;
    axes.emplace_back(name, extent);
  }
  return axes;
}

std::vector<Key> keys_of(Config& config, const models::Families& families) {
  return {
#define TRI_OPTION(section, name, Type, initial, rule, meaning) \
  {#section "." #name, field_of(&config.section.name), rule, meaning},
#define TRI_CHOICE(section, name, Type, initial, values, meaning) \
  {#section "." #name, field_of(&config.section.name), one_of({values}), meaning},
#define TRI_VALUE(enumerator, name) name,
#define TRI_SECTION_MODEL
#define TRI_SECTION_INIT
#define TRI_SECTION_DATA
#define TRI_SECTION_TRAIN
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_SHARDING
#define TRI_SECTION_MEMORY
#define TRI_SECTION_PRUNE
#define TRI_SECTION_DISTIL
#define TRI_SECTION_RUNTIME
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
#undef TRI_VALUE
  };
}

}  // namespace trireme::train
