#pragma once
#include <array>
#include <string_view>

namespace trireme::data {

// The expressions that well-known byte-level vocabularies cut text with.
struct KnownPattern {
  std::string_view name;  // as `trireme tokenize --pattern` takes it
  std::string_view expression;
};

inline constexpr std::array<KnownPattern, 3> kKnownPatterns = {{
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

// Whether none of the expression's matches reaches over, or looks past, the end of a newline between two characters
// that are no white space, or the beginning of a space between two letters: then text may be cut there and encoded in
// parts. Known for the expressions above.
constexpr bool keeps_lines_apart(std::string_view expression) {
  for (const KnownPattern& known : kKnownPatterns)
    if (known.expression == expression) return true;
  return false;
}

}  // namespace trireme::data
