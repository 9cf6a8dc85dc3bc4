#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"
#include "trireme/data/tokenizer/regex.h"

namespace trireme::data {

// One step of what happens to text before anything is cut.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Changes `text` (UTF-8, stays UTF-8). `lost_start` becomes true when characters at its beginning were taken away.
  virtual void apply(std::string& text, bool& lost_start, RegexScratch& scratch) const = 0;
};

// The steps of "normalizer" in order, sequences flattened. Refuses types that there are not.
std::vector<std::unique_ptr<const Normalizer>> read_normalizers(const JsonNode& node);

}  // namespace trireme::data
