#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"
#include "trireme/data/tokenizer/regex.h"

namespace trireme::data {

// One step from the spellings of tokens to text.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // `whole`: bytes that are no UTF-8 become U+FFFD; else they stay, for more may come.
  virtual void apply(std::vector<std::string>& tokens, bool whole, RegexScratch& scratch) const = 0;
};

// The steps of "decoder" in order, sequences flattened. Refuses types that there are not.
std::vector<std::unique_ptr<const Decoder>> read_decoders(const JsonNode& node);

}  // namespace trireme::data
