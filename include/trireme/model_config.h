#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

// The shape of a model: section [model] of a configuration, as options.def declares it (docs/options.md). Keys that a
// family has no use for are ignored by it. Zeros mean "the family's own choice", made where the model is built.
//
//   ModelConfig{.family = "llama", .layers = 2, .width = 64, .heads = 4}
struct ModelConfig {
  using Integer = std::int64_t;
  using Number = double;
  using Text = std::string;
  using AutoFlag = std::optional<bool>;  // absent: "auto"

#define TRI_OPTION(section, name, Type, initial, rule, meaning) Type name = initial;
#define TRI_CHOICE(section, name, Type, initial, values, meaning) Text name = initial;
#define TRI_SECTION_MODEL
#include <trireme/options.def>
#undef TRI_OPTION
#undef TRI_CHOICE

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace trireme
