#include "trireme/train/quantization.h"

#include <charconv>
#include <cstdlib>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::train {
namespace {

// "8", "4:64"
std::optional<ops::CodeFormat> format_of(std::string_view text) {
  ops::CodeFormat format;
  const std::size_t colon = std::min(text.find(':'), text.size());
  if (text.substr(0, colon) == "4")
    format.bits = 4;
  else if (text.substr(0, colon) != "8")
    return std::nullopt;
  if (colon == text.size()) return format;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, format.group);
  if (error != std::errc() || rest != end || format.group < 1) return std::nullopt;
  return format;
}

std::vector<passes::QuantizeWeights::Rule> rules_of(const Config& config) {
  std::vector<passes::QuantizeWeights::Rule> rules;
  for (const std::string& text : config.memory.weight_bits) {
    const std::size_t equals = text.rfind('=');
    passes::QuantizeWeights::Rule rule;
    rule.pattern = text.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    const auto format = format_of(value);
    rule.none = value == "full";
    if (rule.pattern.empty() || (!format && !rule.none))
      refuse(
          "memory.weight_bits: '{}' is no rule; expected a name and 8, 4, bits:group or full, as in \"blocks.0.*=8\" "
          "or "
          "\"*.down.weight=4:64\"",
          text);
    if (format) rule.format = *format;
    rules.push_back(std::move(rule));
  }
  return rules;
}

// Enumerators of both keys have the same names.
template <class E>
ops::CodeFormat format_of(const Choice<E>& choice) {
  const bool eight = choice == E::int8 || choice == E::int8_group;
  const bool grouped = choice == E::int8_group || choice == E::int4_group;
  return {eight ? 8 : 4, grouped ? static_cast<std::int64_t>(choice.argument()) : 0};
}

}  // namespace

std::optional<passes::QuantizeWeights::Options> stored_weights(const Config& config) {
  if (config.memory.weights == StoredWeights::full) return std::nullopt;
  return passes::QuantizeWeights::Options{.format = format_of(config.memory.weights), .rules = rules_of(config)};
}

std::optional<passes::QuantizeWeights::Options> trained_weights(const Config& config) {
  if (config.train.quantize == TrainedCodes::none) return std::nullopt;
  return passes::QuantizeWeights::Options{
      .format = format_of(config.train.quantize), .rules = rules_of(config), .key = "train.quantize"};
}

void check_quantization(const Config& config, bool images) {
  const bool stored = config.memory.weights != StoredWeights::full;
  const bool trained = config.train.quantize != TrainedCodes::none;
  rules_of(config);
  if (!config.memory.weight_bits.empty() && !stored && !trained)
    refuse(
        "memory.weight_bits = [\"{}\"] is for quantized weights, and memory.weights = \"full\"; to train for them, the "
        "nearest is train.quantize = \"int8\"",
        fmt::join(config.memory.weight_bits, "\", \""));
  if (config.memory.linear_inputs != LinearInputs::full && !stored)
    refuse(
        "memory.linear_inputs = \"{}\" is for layers of quantized weights, and memory.weights = \"full\"; `trireme "
        "compress "
        "RUN --weights int8 --activations int8 --out NAME` makes both; the nearest is memory.linear_inputs = \"full\"",
        config.memory.linear_inputs);
  if (images && config.memory.kv_cache != KvCache::full)
    refuse("memory.kv_cache = \"{}\" is for models of text; model.family = \"{}\" keeps no keys and values",
           config.memory.kv_cache, config.model.family);
  if (images && (stored || trained))
    refuse("{} is for models of text; model.family = \"{}\" keeps its weights as they are",
           stored ? fmt::format("memory.weights = \"{}\"", config.memory.weights)
                  : fmt::format("train.quantize = \"{}\"", config.train.quantize),
           config.model.family);
  for (const auto& [options, key] :
       {std::pair(stored_weights(config), "memory.weights"), std::pair(trained_weights(config), "train.quantize")})
    if (options && options->format.bits == 4 && options->format.group % ops::kPackedCodes != 0)
      refuse("{} = \"{}\": groups of 4-bit weights are multiples of {}; the nearest is \"int4:{}\"", key,
             options->format.str(), ops::kPackedCodes,
             std::max<std::int64_t>(1, (options->format.group + ops::kPackedCodes / 2) / ops::kPackedCodes) *
                 ops::kPackedCodes);
}

}  // namespace trireme::train
