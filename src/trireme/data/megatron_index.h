#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/token_stream.h"

namespace trireme::data {

// Megatron's x.idx, which says what x.bin holds:
//
//   "MMIDIDX\0\0"   u64 version = 1   u8 type code   u64 sequences S   u64 documents D
//   i32 lengths[S]   i64 offsets[S] (bytes in x.bin)   i64 documents[D] (first sequence of each, then S)
//   i8 modes[S] (only of multimodal sets)
struct MegatronIndex {
  TokenType type = TokenType::u16;
  std::uint64_t sequences = 0;
};

// Reads `bytes`, the index called `name` of a token file of `bin_bytes` bytes. Refuses another magic or version, tokens
// that are no uint8, uint16, int32 or int64, a size other than the counts give, and sequences that do not lie end to
// end in the token file. Of those the first and last million are looked at, so that no index is too large to open.
MegatronIndex parse_megatron_index(std::span<const std::byte> bytes, std::uint64_t bin_bytes, const std::string& name);

}  // namespace trireme::data
