#pragma once
#include <trireme/options.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/choice.h"

namespace trireme::data {

// The enumerations of section [data] in options.def, and their names.
#define TRI_OPTION(section, name, Type, initial, rule, meaning)
#define TRI_CHOICE(section, name, Type, initial, values, meaning) enum class Type : std::uint8_t { values };
#define TRI_VALUE(enumerator, name) enumerator,
#define TRI_SECTION_DATA
#include <trireme/options.def>
#undef TRI_CHOICE
#undef TRI_VALUE
#define TRI_CHOICE(section, name, Type, initial, values, meaning) \
  constexpr auto value_names(Type) { return std::to_array<std::string_view>({values}); }
#define TRI_VALUE(enumerator, name) name,
#define TRI_SECTION_DATA
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE
#undef TRI_VALUE

// Where samples come from: section [data] of a configuration, as options.def declares it.
struct DataConfig {
  using Number = double;
  using Text = std::string;
  using Texts = std::vector<std::string>;

#define TRI_OPTION(section, name, Type, initial, rule, meaning) Type name = initial;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) Choice<Type> name = initial;
#define TRI_SECTION_DATA
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// What a model asks of its samples.
struct SampleShape {
  bool images = false;
  std::int64_t context = 0;  // tokens per sequence
  std::int64_t vocab = 0;    // 0: from the tokenizer
  // 0: as the image files have it
  std::int64_t image = 0;  // height and width
  std::int64_t channels = 0;
  std::int64_t classes = 0;
};

}  // namespace trireme::data
