#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/added_tokens.h"
#include "trireme/data/tokenizer/bpe.h"
#include "trireme/data/tokenizer/decoder.h"
#include "trireme/data/tokenizer/normalizer.h"
#include "trireme/data/tokenizer/post_processor.h"
#include "trireme/data/tokenizer/pre_tokenizer.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {

// A tokenizer.json of Hugging Face's library: added tokens are found, the rest is normalised, cut into words, and each
// word becomes tokens by byte-pair encoding.
class JsonTokenizer final : public Tokenizer {
 public:
  // `name` is the file's in errors. Refuses what is malformed and every component that is not supported.
  JsonTokenizer(std::string json, const std::string& name);
  ~JsonTokenizer() override;

  using Tokenizer::encode;
  std::int64_t vocab() const override { return vocab_; }
  void encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids, Specials specials = Specials::add) const override;
  std::string decode_bytes(std::span<const std::int32_t> ids, Specials specials) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::optional<std::string> token_of(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override;
  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  Cuts cuts() const override { return cut_at_; }
  std::uint64_t bytes() const override;
  std::string_view json() const override { return json_; }

 private:
  // What one call of encode or decode works with; kept for the next.
  struct Scratch;
  class Lease;

  void read(const JsonNode& root);
  void encode_part(std::string_view text, bool first, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, bool first, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, const char* end, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  std::string decode(std::span<const std::int32_t> ids, Specials specials, bool whole) const;

  std::string json_;
  std::vector<AddedToken> added_;
  FlatMap<const AddedToken*> added_by_id_;
  AddedTokenFinder plain_added_;
  AddedTokenFinder normalized_added_;
  std::vector<std::unique_ptr<const Normalizer>> normalizers_;
  PreTokenizers cuts_;
  const Regex* only_cut_ = nullptr;  // when cutting is one expression and nothing else
  std::unique_ptr<const Bpe> model_;
  Frame frame_;
  bool has_decoder_ = false;
  std::vector<std::unique_ptr<const Decoder>> decoders_;
  std::int64_t vocab_ = 0;
  std::optional<std::int32_t> end_of_text_;
  Cuts cut_at_ = Cuts::none;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace trireme::data
