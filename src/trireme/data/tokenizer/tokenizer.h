#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

// Whether `encode` adds what a model expects around a text (a beginning-of-text token, say): prompts want it, training
// text does not.
enum class Specials : bool { none, add };

// Where a text may be cut and its parts be encoded each alone, with the same ids: what lets one long document be
// encoded by many threads, and in little memory. Each allows what those before it allow.
enum class Cuts : std::uint8_t {
  none,
  lines,     // behind a newline between two printable ASCII characters
  words,     // before a space between two ASCII letters
  anywhere,  // between any two characters
};

// Text to token ids and back. Const and safe from many threads at once.
//
//   const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer("tokenizer.json");
//   std::vector<std::int32_t> ids = tokenizer->encode("Hello", Specials::add);
//   std::string text = tokenizer->decode(ids, Specials::none);
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // One more than the largest id there is.
  virtual std::int64_t vocab() const = 0;

  // Appends the ids of `text` to `ids`. Bytes of `text` that are not UTF-8 count as U+FFFD (except for bytes).
  virtual void encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids) const = 0;
  std::vector<std::int32_t> encode(std::string_view text, Specials specials = Specials::none) const;

  // The text of `ids`; ids that are no token say nothing. `Specials::none` leaves special tokens out.
  virtual std::string decode(std::span<const std::int32_t> ids, Specials specials = Specials::add) const = 0;
  // The same before bytes that are not UTF-8 become U+FFFD: what StreamDecoder needs.
  virtual std::string decode_bytes(std::span<const std::int32_t> ids, Specials specials) const = 0;

  // The id of a token by its spelling in the vocabulary ("<|endoftext|>", "Ġthe"), and the other way round.
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::optional<std::string> token_of(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  // The token that ends a document, where the vocabulary has one under a usual name.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  virtual Cuts cuts() const = 0;

  // Bytes of memory that its tables take, and what was read to make them, at most.
  virtual std::uint64_t bytes() const = 0;

  // The tokenizer.json this came from, byte for byte, for export; empty for bytes.
  virtual std::string_view json() const = 0;
};

// The file of a folder that tells its tokenizer: tokenizer.json or, for GPT-2's older files, vocab.json with merges.txt
// next to it. Nothing where there is neither.
std::optional<std::string> tokenizer_file(const std::string& folder);
// The files that open_tokenizer reads for `spec`.
std::vector<std::string> tokenizer_files(const std::string& spec);

// "bytes", a tokenizer.json, a vocab.json with merges.txt, or a folder that holds one of those. Refuses, naming the
// file, what is missing, malformed or uses parts that this version does not have. `key` is what messages
// call that which named it.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& spec, const std::string& key = "tokenizer");

// Text as tokens arrive one by one: each `push` gives what has become certain, and bytes of an unfinished UTF-8
// sequence wait for the next. All pushes and `finish` together give decode() of all the ids, provided that is UTF-8.
//
//   StreamDecoder stream(*tokenizer);
//   for (std::int32_t id : ids) fmt::print("{}", stream.push(id));
//   fmt::print("{}", stream.finish());
class StreamDecoder {
 public:
  // The tokenizer must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, Specials specials = Specials::none)
      : tokenizer_(&tokenizer), specials_(specials) {}

  // Ids that came before and whose text is known already, such as the prompt's.
  void skip(std::span<const std::int32_t> ids);
  std::string push(std::int32_t id);
  // What still waits, unfinished sequences as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  Specials specials_;
  std::vector<std::int32_t> context_;  // how the next token reads depends on whether it is the first
  std::string waiting_;
};

}  // namespace trireme::data
