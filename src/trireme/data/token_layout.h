#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "trireme/core/option_names.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// Raw token files do not say what they hold, and what is read in another width trains without an error. Says what the
// bytes look like instead, at their beginning, middle and end, and what to do about it, where they hardly can be tokens
// of `type`: wider integers, whole or cut off within one, a NumPy file, text. Nothing where they may well be. `given`:
// a person says that they are of `type`, and only overwhelming evidence counts against it: some hundred numbers whose
// upper parts are all 0, or are small where many different lower ones are found.
std::optional<std::string> looks_otherwise(std::span<const std::byte> bytes, TokenType type, bool given,
                                           const OptionNames& names = {});

// Whether the bytes are characters of text, in ASCII or UTF-8, and nothing else.
bool is_text(std::span<const std::byte> bytes);

// The wider type, if any, that the bytes look like.
std::optional<TokenType> looks_wider(std::span<const std::byte> bytes, TokenType type, bool given);

}  // namespace trireme::data
