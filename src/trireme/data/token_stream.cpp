#include "trireme/data/token_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

std::uint32_t token_at(const std::byte* data, TokenType type, std::int64_t index) {
  const std::byte* at = data + index * static_cast<std::int64_t>(type);
  switch (type) {
    case TokenType::u8: return std::to_integer<std::uint32_t>(*at);
    case TokenType::u16: {
      std::uint16_t token = 0;
      std::memcpy(&token, at, sizeof token);
      return token;
    }
    case TokenType::i64: {
      // No vocabulary is as large as what does not fit: it stays out of every one.
      std::uint64_t token = 0;
      std::memcpy(&token, at, sizeof token);
      constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(token, kNone));
    }
    case TokenType::u32: break;
  }
  std::uint32_t token = 0;
  std::memcpy(&token, at, sizeof token);
  return token;
}

// The number as the file has it, which may be no token.
std::int64_t number_at(const std::byte* data, TokenType type, std::int64_t index) {
  if (type != TokenType::i64) return token_at(data, type, index);
  std::int64_t number = 0;
  std::memcpy(&number, data + index * static_cast<std::int64_t>(type), sizeof number);
  return number;
}

}  // namespace

void TokenStream::append(std::string name, std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                         TokenType type) {
  const auto width = static_cast<std::size_t>(type);
  TRI_CHECK(bytes.size() % width == 0, "{}: {} bytes are no whole number of tokens", name, bytes.size());
  const auto tokens = static_cast<std::int64_t>(bytes.size() / width);
  if (tokens == 0) return;
  pieces_.push_back({std::move(name), std::move(owner), bytes.data(), type, size_, tokens, 0, nullptr});
  size_ += tokens;
}

void TokenStream::append(std::string name, const std::shared_ptr<const MappedFile>& file,
                         std::span<const std::byte> bytes, TokenType type) {
  if (bytes.empty()) return;
  append(std::move(name), std::shared_ptr<const void>(file), bytes, type);
  pieces_.back().file = file.get();
}

void TokenStream::append(const TokenStream& other) {
  for (Piece piece : other.pieces_) {
    piece.first += size_;
    pieces_.push_back(std::move(piece));
  }
  size_ += other.size_;
}

std::size_t TokenStream::piece_of(std::int64_t position) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), position,
                                      [](std::int64_t p, const Piece& piece) { return p < piece.first; });
  return static_cast<std::size_t>(after - pieces_.begin()) - 1;
}

void TokenStream::read(const Piece& piece, std::int64_t first, std::span<std::int32_t> out) {
  const auto widen = [&](const std::byte* from, std::span<std::int32_t> to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::int32_t>(token_at(from, piece.type, static_cast<std::int64_t>(i)));
  };
  const auto width = static_cast<std::size_t>(piece.type);
  const std::byte* from = piece.data + static_cast<std::size_t>(first) * width;
  if (piece.file == nullptr) return widen(from, out);
  std::array<std::byte, 16384> block;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block.size() / width);
    piece.file->read(from, std::span(block).first(count * width));
    widen(block.data(), out.first(count));
    out = out.subspan(count);
    from += count * width;
  }
}

void TokenStream::read(std::int64_t first, std::span<std::int32_t> out) const {
  TRI_CHECK(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size_, "tokens {} to {} of {}", first,
            first + static_cast<std::int64_t>(out.size()), size_);
  std::int64_t done = 0;
  const auto wanted = static_cast<std::int64_t>(out.size());
  for (std::size_t p = wanted > 0 ? piece_of(first) : 0; done < wanted; ++p) {
    const Piece& piece = pieces_[p];
    const std::int64_t begin = first + done - piece.first;
    const std::int64_t count = std::min(piece.size - begin, wanted - done);
    read(piece, begin, out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)));
    done += count;
  }
}

TokenStream TokenStream::slice(std::int64_t first, std::int64_t last) const {
  TRI_CHECK(0 <= first && first <= last && last <= size_, "tokens {} to {} of {}", first, last, size_);
  TokenStream result;
  for (const Piece& piece : pieces_) {
    const std::int64_t begin = std::max(first, piece.first);
    const std::int64_t end = std::min(last, piece.first + piece.size);
    if (begin >= end) continue;
    Piece part = piece;
    part.data += (begin - piece.first) * static_cast<std::int64_t>(piece.type);
    part.file_offset += begin - piece.first;
    part.first = result.size_;
    part.size = end - begin;
    result.size_ += part.size;
    result.pieces_.push_back(std::move(part));
  }
  return result;
}

std::optional<std::string> TokenStream::beyond(std::int64_t vocab, std::int64_t first, std::int64_t last,
                                               std::string_view vocab_name) const {
  if (first >= last) return std::nullopt;
  for (std::size_t p = piece_of(first); p < pieces_.size() && pieces_[p].first < last; ++p) {
    const Piece& piece = pieces_[p];
    const std::int64_t end = std::min(piece.size, last - piece.first);
    for (std::int64_t i = std::max<std::int64_t>(0, first - piece.first); i < end; ++i) {
      const std::uint32_t token = token_at(piece.data, piece.type, i);
      if (static_cast<std::int64_t>(token) >= vocab)
        return fmt::format(
            "{}: token {} at position {} is {} {} = {}", piece.name, number_at(piece.data, piece.type, i),
            piece.file_offset + i,
            number_at(piece.data, piece.type, i) < 0 ? "negative, and must be at least 0 and below" : "not below",
            vocab_name, vocab);
    }
  }
  return std::nullopt;
}

TokenDataset::TokenDataset(TokenStream stream, std::int64_t context, std::int64_t vocab, const std::string& what,
                           const OptionNames& names)
    : stream_(std::move(stream)), context_(context), vocab_(vocab), vocab_name_(names.vocab) {
  if (stream_.size() < context + 1)
    refuse("data: {} {} of {} {} too few for {} = {}, which needs at least {}",
           format_count(static_cast<std::uint64_t>(stream_.size())), stream_.size() == 1 ? "token" : "tokens", what,
           stream_.size() == 1 ? "is" : "are", names.context, context, context + 1);
}

void TokenDataset::resize(Batch& batch, std::int64_t rows) const {
  batch.tokens.resize(static_cast<std::size_t>(rows * context_));
  batch.targets.resize(static_cast<std::size_t>(rows * context_));
}

void TokenDataset::read(std::int64_t sample, std::int64_t row, Batch& batch) const {
  const auto length = static_cast<std::size_t>(context_);
  const std::span tokens = std::span(batch.tokens).subspan(static_cast<std::size_t>(row) * length, length);
  const std::span targets = std::span(batch.targets).subspan(static_cast<std::size_t>(row) * length, length);
  const std::int64_t first = sample * context_;
  stream_.read(first, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  stream_.read(first + context_, targets.last(1));
  // Tokens above 2^31 have become negative: one unsigned comparison finds both kinds.
  const auto bad = [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= static_cast<std::uint64_t>(vocab_);
  };
  if (bad(tokens[0]) || std::any_of(targets.begin(), targets.end(), bad))
    fail("{}", stream_.beyond(vocab_, first, first + context_ + 1, vocab_name_).value());
}

DataMemory TokenDataset::memory() const {
  DataMemory sum;
  for (const TokenStream::Piece& piece : stream_.pieces())
    (piece.file == nullptr ? sum.held : sum.mapped) +=
        static_cast<std::uint64_t>(piece.size) * static_cast<std::uint64_t>(piece.type);
  return sum;
}

}  // namespace trireme::data
