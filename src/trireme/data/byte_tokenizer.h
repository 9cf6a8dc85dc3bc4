#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// One token per byte.
struct ByteTokenizer {
  static constexpr std::int64_t vocab = 256;

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  // Tokens beyond the last byte (a vocabulary may be padded) become '?'.
  std::string decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) text += token >= 0 && token < vocab ? static_cast<char>(token) : '?';
    return text;
  }
};

}  // namespace trireme::data
