#pragma once
#include <cstdint>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"

namespace trireme::data {

// What a model expects around a text.
struct Frame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

// "post_processor" of a tokenizer.json, as far as it concerns one text alone. Refuses types that there are not.
Frame read_frame(const JsonNode& node);

}  // namespace trireme::data
