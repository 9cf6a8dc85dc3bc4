#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/token_stream.h"

namespace trireme::data {

// Maps the token files that `patterns` name (files or globs, each glob's files sorted by name) and puts them end to
// end. Known by their first bytes: llm.c's files (uint16 and uint32) and Megatron's .bin with its .idx beside it;
// anything else is raw little-endian tokens of `token_type` ("auto": uint16 if vocab <= 65536, else uint32).
// `key` names the configuration key in errors. Refuses what is missing, empty, malformed or begins with tokens beyond
// the vocabulary.
TokenStream open_token_files(std::span<const std::string> patterns, const std::string& token_type, std::int64_t vocab,
                             const std::string& key, int* files = nullptr);

}  // namespace trireme::data
