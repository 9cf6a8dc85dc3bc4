#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data/tokenizer/train_bpe.h"

namespace trireme::data {

// A tokenizer.json with a byte-level vocabulary, as Hugging Face's library writes and reads it. Ids are positions in
// `tokens`, of which the first are the special ones.
std::string byte_level_json(const std::vector<std::string>& tokens,
                            const std::vector<std::pair<std::uint32_t, std::uint32_t>>& merges,
                            const TrainBpeOptions& options);

}  // namespace trireme::data
