#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/mapped_file.h"
#include "trireme/core/option_names.h"
#include "trireme/data/dataset.h"

namespace trireme::data {

enum class TokenType : std::uint8_t { u8 = 1, u16 = 2, u32 = 4, i64 = 8 };  // the value is the size in bytes

// Tokens of several files end to end, in whatever width each file has.
class TokenStream {
 public:
  // `bytes` stays alive as long as `owner`. Little-endian. A file is looked at before it is read: it may have been cut.
  void append(std::string name, std::shared_ptr<const void> owner, std::span<const std::byte> bytes, TokenType type);
  void append(std::string name, const std::shared_ptr<const MappedFile>& file, std::span<const std::byte> bytes,
              TokenType type);
  // Puts another stream behind.
  void append(const TokenStream& other);

  std::int64_t size() const { return size_; }
  // Tokens first … first + out.size() - 1.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  // Tokens [first, last) as a stream of their own.
  TokenStream slice(std::int64_t first, std::int64_t last) const;
  // What is wrong, naming file and position, if one of the tokens [first, last) is not below `vocab`.
  // `vocab_name`: what messages call `vocab`.
  std::optional<std::string> beyond(std::int64_t vocab, std::int64_t first, std::int64_t last,
                                    std::string_view vocab_name = OptionNames{}.vocab) const;

  struct Piece {
    std::string name;
    std::shared_ptr<const void> owner;
    const std::byte* data = nullptr;
    TokenType type = TokenType::u8;
    std::int64_t first = 0;            // position in the stream
    std::int64_t size = 0;             // tokens
    std::int64_t file_offset = 0;      // tokens of the file that come before, for messages
    const MappedFile* file = nullptr;  // where the tokens lie in one
  };
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::size_t piece_of(std::int64_t position) const;
  // Tokens of one piece, from its own `first` on.
  static void read(const Piece& piece, std::int64_t first, std::span<std::int32_t> out);

  std::vector<Piece> pieces_;
  std::int64_t size_ = 0;
};

// Sample i reads context + 1 tokens from i * context; targets are the tokens shifted by one.
class TokenDataset final : public Dataset {
 public:
  // Refuses a stream shorter than one sample; `what` names it ("training text").
  TokenDataset(TokenStream stream, std::int64_t context, std::int64_t vocab, const std::string& what,
               const OptionNames& names = {});

  std::int64_t samples() const override { return (stream_.size() - 1) / context_; }
  std::int64_t tokens_per_sample() const override { return context_; }
  void resize(Batch& batch, std::int64_t rows) const override;
  void read(std::int64_t sample, std::int64_t row, Batch& batch) const override;
  DataMemory memory() const override;

  const TokenStream& stream() const { return stream_; }

 private:
  TokenStream stream_;
  std::int64_t context_;
  std::int64_t vocab_;
  std::string_view vocab_name_;
};

}  // namespace trireme::data
