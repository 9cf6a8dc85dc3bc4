#pragma once
#include <filesystem>
#include <string>

namespace trireme::data {

// GPT-2's older files as a tokenizer.json: `vocab` (vocab.json) with merges.txt next to it, and the special tokens that
// special_tokens_map.json and added_tokens.json name where they are there. Refuses files that are missing or malformed,
// and those that tokenizer_config.json says belong to another kind of tokenizer.
std::string gpt2_tokenizer_json(const std::filesystem::path& vocab);

}  // namespace trireme::data
