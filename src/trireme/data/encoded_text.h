#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "trireme/core/option_names.h"
#include "trireme/data/encode_documents.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// Memory for text that becomes tokens, of one run: what there is, and what was taken.
struct TextMemory {
  std::uint64_t there = 0;    // for the tokens, and for encoding them
  std::uint64_t most = 0;     // of it for tokens
  std::uint64_t tokens = 0;   // taken by tokens so far
  std::uint64_t longest = 0;  // EncodeProgress::longest so far
};

// The documents of `files` as tokens in memory, in the narrowest width that holds the vocabulary. Refuses, as soon as
// it can be foreseen and before it is taken, what needs more than `memory` has, and says what to do instead. `key` is
// what messages call that which named the files.
TokenStream encode_text(std::span<const TextFile> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                        TextMemory& memory, std::string_view key, const OptionNames& names = {});

}  // namespace trireme::data
