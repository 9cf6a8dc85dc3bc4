#include "trireme/data/token_writer.h"

#include <array>
#include <string_view>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

constexpr std::size_t kHeaderWords = 256;

}  // namespace

TokenWriter::TokenWriter(std::string path, TokenFormat format, TokenType type)
    : path_(std::move(path)), file_(path_), format_(format), type_(type) {
  // Its numbers are known at the end.
  constexpr std::array<std::uint32_t, kHeaderWords> kUnknown{};
  if (format_ == TokenFormat::llmc) file_.write(std::as_bytes(std::span(kUnknown)));
}

std::uint64_t TokenWriter::bytes() const {
  const std::uint64_t header = format_ == TokenFormat::llmc ? kHeaderWords * sizeof(std::uint32_t) : 0;
  return header + tokens_ * static_cast<std::uint64_t>(type_);
}

void TokenWriter::write(std::span<const std::int32_t> tokens) {
  if (type_ == TokenType::u16) {
    narrow_.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      TRI_CHECK(tokens[i] >= 0 && tokens[i] <= 0xFFFF, "token {} does not fit uint16", tokens[i]);
      narrow_[i] = static_cast<std::uint16_t>(tokens[i]);
    }
    file_.write(std::as_bytes(std::span<const std::uint16_t>(narrow_)));
  } else {
    file_.write(std::as_bytes(tokens));
  }
  tokens_ += tokens.size();
}

void TokenWriter::commit() {
  if (format_ == TokenFormat::llmc) {
    if (tokens_ > 0xFFFFFFFF)
      fail("{}: llm.c's format counts tokens in 32 bits and cannot hold {}; write it raw or as several files", path_,
           tokens_);
    std::array<std::uint32_t, kHeaderWords> header{};
    const bool narrow = type_ == TokenType::u16;
    header[0] = narrow ? 20240520 : 20240801;
    header[1] = narrow ? 1 : 7;
    header[2] = static_cast<std::uint32_t>(tokens_);
    file_.rewrite(0, std::string_view(reinterpret_cast<const char*>(header.data()), sizeof header));
  }
  file_.commit();
}

}  // namespace trireme::data
