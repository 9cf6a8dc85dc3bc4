#pragma once
#include <cstddef>
#include <string_view>

#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {

// Parts of long texts: enough of them to keep many threads busy, long enough to cost nothing.
inline constexpr std::size_t kPart = std::size_t{128} << 10;

// How many bytes of `text` to take as its next part: about kPart, up to a place where `cuts` lets it be cut; all of it
// where it is not much longer, or has no such place. `escaped`: text as it is written in a JSON string, with valid
// escapes.
std::size_t next_part(std::string_view text, Cuts cuts, bool escaped);

}  // namespace trireme::data
