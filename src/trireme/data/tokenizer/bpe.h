#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/flat_map.h"
#include "trireme/data/tokenizer/json_node.h"
#include "trireme/data/tokenizer/merge.h"
#include "trireme/data/tokenizer/vocabulary.h"

namespace trireme::data {

// Byte-pair encoding: a word begins as its characters (or bytes), and the pair of neighbours that was learnt first is
// merged, again and again. Read from "model" of a tokenizer.json.
class Bpe {
 public:
  // With `byte_level`, words come as plain bytes where the vocabulary spells them as characters (byte_level.h).
  Bpe(const JsonNode& model, bool byte_level);

  // Appends the ids of one word, which must be UTF-8 unless byte_level.
  void encode(std::string_view word, MergeScratch& scratch, std::vector<std::int32_t>& ids) const;

  // Whether words can be cut before `right` (the character after `left`) without any id changing: no merge makes a
  // token with the two side by side. Only where words come without any cut can this be worth asking.
  bool may_cut() const { return may_cut_; }
  bool joined(char32_t left, char32_t right) const { return joined_.find(pair_key(left, right)) != nullptr; }
  // Whether a whole word that is a token stays one, whatever the merges say.
  bool ignores_merges() const { return ignore_merges_; }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::size_t merges() const { return merges_.size(); }

 private:
  void read_merges(const JsonNode& merges);
  void add_merge(std::string_view a, std::string_view b, std::uint32_t rank, const JsonNode& node);
  void prepare_bytes();
  void prepare_characters();
  void prepare_cuts();
  void start_bytes(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void start_characters(std::string_view word, std::vector<std::int32_t>& symbols) const;
  std::optional<std::int32_t> character(std::string_view spelling, char32_t c, bool first, bool last) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::string prefix_;  // of a character that is not the first of its word
  std::string suffix_;  // of the last
  std::optional<std::string> unknown_name_;
  std::int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool byte_level_ = false;   // words are spelled on the way in
  bool plain_bytes_ = false;  // every byte is a token: words need not be spelled
  bool may_cut_ = false;
  std::array<std::int32_t, 256> byte_ids_{};  // byte-level: of each byte; else: of "<0x41>"; -1: none
  std::array<std::int32_t, 128> ascii_ids_{};
  FlatMap<std::int32_t> character_ids_;
  FlatMap<bool> joined_;
  Vocabulary whole_;  // with ignore_merges and plain bytes: tokens by their bytes
};

}  // namespace trireme::data
