#pragma once
#include <cstddef>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"

namespace trireme::data {

// What becomes of the places where text is cut: for '-' in "the-final--countdown"
enum class SplitBehavior {
  removed,               // the | final | countdown
  isolated,              // the | - | final | - | - | countdown
  merged_with_previous,  // the- | final- | - | countdown
  merged_with_next,      // the | -final | - | -countdown
  contiguous,            // the | - | final | -- | countdown
};
SplitBehavior read_behavior(const JsonNode& node);

struct Span {
  std::size_t begin;
  std::size_t end;
  bool match;
};

// Turns spans that cover a text, matches and what lies between them, into the pieces that `behavior` makes of them.
void arrange(SplitBehavior behavior, std::vector<Span>& spans);

}  // namespace trireme::data
