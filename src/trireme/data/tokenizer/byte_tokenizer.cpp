#include "trireme/data/tokenizer/byte_tokenizer.h"

namespace trireme::data {

void ByteTokenizer::encode(std::string_view text, Specials /*specials*/, std::vector<std::int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids, Specials /*specials*/) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) text += id >= 0 && id < kVocab ? static_cast<char>(id) : '?';
  return text;
}

std::string ByteTokenizer::decode_bytes(std::span<const std::int32_t> ids, Specials specials) const {
  return decode(ids, specials);
}

std::optional<std::int32_t> ByteTokenizer::id_of(std::string_view token) const {
  if (token.size() != 1) return std::nullopt;
  return static_cast<unsigned char>(token[0]);
}

std::optional<std::string> ByteTokenizer::token_of(std::int32_t id) const {
  if (id < 0 || id >= kVocab) return std::nullopt;
  return std::string(1, static_cast<char>(id));
}

}  // namespace trireme::data
