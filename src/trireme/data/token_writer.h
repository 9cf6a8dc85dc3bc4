#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/token_stream.h"

namespace trireme::data {

enum class TokenFormat {
  raw,   // little-endian tokens and nothing else
  llmc,  // llm.c's: a header of 256 words, then the tokens
};

// Writes a token file that appears whole or not at all: without a name until `commit`, so that nothing is left of a
// process that was killed; under another name in the same folder where the file system has no such files.
class TokenWriter {
 public:
  // `type` is u16 or u32. Fails, naming the file, when it cannot be written.
  TokenWriter(std::string path, TokenFormat format, TokenType type);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void write(std::span<const std::int32_t> tokens);
  void commit();

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t bytes() const;

 private:
  void put(const void* data, std::size_t size, std::int64_t offset);

  std::string path_;
  std::string aside_;
  bool nameless_ = false;
  int file_ = -1;
  TokenFormat format_;
  TokenType type_;
  std::uint64_t tokens_ = 0;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace trireme::data
