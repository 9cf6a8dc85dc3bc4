#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/core/atomic_file.h"
#include "trireme/data/token_stream.h"

namespace trireme::data {

enum class TokenFormat {
  raw,   // little-endian tokens and nothing else
  llmc,  // llm.c's: a header of 256 words, then the tokens
};

// Writes a token file that appears whole or not at all (`core/atomic_file.h`).
class TokenWriter {
 public:
  // `type` is u16 or u32. Fails, naming the file, when it cannot be written.
  TokenWriter(std::string path, TokenFormat format, TokenType type);

  void write(std::span<const std::int32_t> tokens);
  void commit();

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t bytes() const;

 private:
  std::string path_;
  AtomicFile file_;
  TokenFormat format_;
  TokenType type_;
  std::uint64_t tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace trireme::data
