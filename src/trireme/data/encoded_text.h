#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "trireme/core/option_names.h"
#include "trireme/data/encode_documents.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// The documents of `files` as tokens in memory, in the narrowest width that holds the vocabulary. Refuses, as soon as
// it can be foreseen, text whose tokens would take more than `max_bytes`, and says what to do instead. `key` is what
// messages call that which named the files.
TokenStream encode_text(std::span<const TextFile> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                        std::uint64_t max_bytes, std::string_view key, const OptionNames& names = {});

}  // namespace trireme::data
