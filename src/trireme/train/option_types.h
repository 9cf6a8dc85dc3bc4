#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/choice.h"

namespace trireme::train {

// Written "25MiB" in a configuration; "" is 0. Text in code must be a size.
struct Bytes {
  std::uint64_t count = 0;

  Bytes() = default;
  Bytes(std::uint64_t bytes) : count(bytes) {}
  Bytes(const char* text);
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// A size, or "auto", which leaves it to the program.
struct AutoBytes {
  std::optional<Bytes> size;

  AutoBytes(Bytes bytes) : size(bytes) {}
  AutoBytes(const char* text);
  bool automatic() const { return !size; }
  friend bool operator==(const AutoBytes&, const AutoBytes&) = default;
};

// Written "3h50m"; "" is 0.
struct Seconds {
  double count = 0;

  Seconds() = default;
  Seconds(const char* text);
  friend bool operator==(const Seconds&, const Seconds&) = default;
};

// Every so many steps, or every so often; both zero: never.
struct Interval {
  std::int64_t steps = 0;
  double seconds = 0;

  Interval(std::int64_t every_steps, double every_seconds) : steps(every_steps), seconds(every_seconds) {}
  Interval(const char* text);
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Which kinds of tensors are offloaded: "none", "all", or some of activations,weights,optimizer.
struct OffloadSet {
  bool activations = false;
  bool weights = false;
  bool optimizer = false;

  OffloadSet() = default;
  OffloadSet(std::string_view text);
  OffloadSet(const std::string& text) : OffloadSet(std::string_view(text)) {}
  OffloadSet(const char* text) : OffloadSet(std::string_view(text)) {}
  static std::optional<OffloadSet> parse(std::string_view text);
  std::string text() const;

  bool none() const { return !activations && !weights && !optimizer; }
  // Weights or optimizer states: more than activations.
  bool state() const { return weights || optimizer; }
  friend bool operator==(const OffloadSet&, const OffloadSet&) = default;
};

// The enumerations of options.def, and their names.
#define TRI_OPTION(section, name, Type, initial, rule, meaning)
#define TRI_CHOICE(section, name, Type, initial, values, meaning) enum class Type : std::uint8_t { values };
#define TRI_VALUE(enumerator, name) enumerator,
#define TRI_SECTION_TRAIN
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_MEMORY
#define TRI_SECTION_PRUNE
#define TRI_SECTION_RUNTIME
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>
#undef TRI_CHOICE
#undef TRI_VALUE
#define TRI_CHOICE(section, name, Type, initial, values, meaning) \
  constexpr auto value_names(Type) { return std::to_array<std::string_view>({values}); }
#define TRI_VALUE(enumerator, name) name,
#define TRI_SECTION_TRAIN
#define TRI_SECTION_PARALLEL
#define TRI_SECTION_MEMORY
#define TRI_SECTION_PRUNE
#define TRI_SECTION_RUNTIME
#define TRI_SECTION_OUTPUT
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
#undef TRI_VALUE

// What the types of options.def are in a configuration.
namespace option_types {
using Integer = std::int64_t;
using Number = double;
using Flag = bool;
using AutoFlag = std::optional<bool>;
using Text = std::string;
using Texts = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Pair = std::array<double, 2>;
using Size = Bytes;
using AutoSize = AutoBytes;
using Duration = Seconds;
using Interval = train::Interval;
using Offload = OffloadSet;
using Table = std::map<std::string, std::string>;
}  // namespace option_types

}  // namespace trireme::train

template <>
struct fmt::formatter<trireme::train::OffloadSet> : fmt::formatter<std::string> {
  auto format(const trireme::train::OffloadSet& kinds, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(kinds.text(), context);
  }
};
