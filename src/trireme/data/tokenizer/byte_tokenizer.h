#pragma once
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {

// One token per byte.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int64_t kVocab = 256;

  using Tokenizer::encode;
  std::int64_t vocab() const override { return kVocab; }
  void encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids) const override;
  // Tokens beyond the last byte (a vocabulary may be padded) become '?'. Bytes stay as they are, UTF-8 or not.
  std::string decode(std::span<const std::int32_t> ids, Specials specials = Specials::add) const override;
  std::string decode_bytes(std::span<const std::int32_t> ids, Specials specials) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::optional<std::string> token_of(std::int32_t id) const override;
  bool is_special(std::int32_t) const override { return false; }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  Cuts cuts() const override { return Cuts::anywhere; }
  std::uint64_t bytes() const override { return 0; }
  std::string_view json() const override { return {}; }
};

}  // namespace trireme::data
