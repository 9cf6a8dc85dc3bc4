#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "trireme/data/token_stream.h"

namespace trireme::data {

// Raw token files do not say what they hold, and what is read in another width trains without an error. Says what the
// first bytes look like instead, and what to do about it, where they hardly can be tokens of `type`: wider integers, a
// NumPy file, text. Nothing where they may well be.
std::optional<std::string> looks_otherwise(std::span<const std::byte> bytes, TokenType type);

}  // namespace trireme::data
