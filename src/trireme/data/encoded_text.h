#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trireme/data/encode_documents.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// The documents of `files` as tokens in memory, in the narrowest width that holds the vocabulary. Refuses, as soon as
// it can be foreseen, text whose tokens would take more than `max_bytes`, and says what to do instead.
TokenStream encode_text(std::span<const TextFile> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                        std::uint64_t max_bytes, const std::string& key);

}  // namespace trireme::data
