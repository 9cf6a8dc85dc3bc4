#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/option_names.h"
#include "trireme/data/data_config.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

// Tokens that are read together: all of them, or one source of a mixture.
struct TokenSource {
  std::string pattern;
  double weight = 1;
  TokenStream stream;
  int files = 0;
};

// Maps the token files that `patterns` name (files or globs, each glob's files sorted by name). Without mixing weights
// they make one source, end to end; with them ("shard-*.bin@0.7", on every pattern or none) one source each.
//
// Known by their first bytes: llm.c's files (uint16 and uint32) and Megatron's .bin with its .idx next to it; anything
// else is raw little-endian tokens of `token_type` ("auto": uint16 if vocab <= 65536, else uint32). `key` is what
// messages call that which named the files. Refuses what is missing, empty, malformed or begins with tokens beyond the
// vocabulary, and what looks like something else (token_layout.h). `random`: samples will be read in no order, and of
// files larger than memory nothing is read ahead.
std::vector<TokenSource> open_token_files(std::span<const std::string> patterns, const Choice<RawTokens>& token_type,
                                          std::int64_t vocab, std::string_view key, bool random = false,
                                          const OptionNames& names = {});

// Whether a file can be one that `trireme tokenize` wrote: it has llm.c's header, or it is called .bin, has no .idx of
// Megatron's next to it, and all its numbers are tokens. Raw tokens do not say of which vocabulary they are: uint16
// must be below `vocab`.
bool is_known_as_tokens(const std::string& path, std::int64_t vocab);

}  // namespace trireme::data
