#include "trireme/data/tokenizer/bpe.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

// A word longer than this is refused: positions are 32 bits wide, and memory is several times the text.
constexpr std::size_t kLongestWord = std::size_t{1} << 30;

}  // namespace

Bpe::Bpe(const JsonNode& model, bool byte_level) : vocabulary_(model.at("vocab")), byte_level_(byte_level) {
  if (const auto dropout = model.find("dropout"))
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0)
      dropout->refuse("must be absent or 0: random merges are not supported");
  unknown_name_ = model.optional_text("unk_token");
  if (unknown_name_) unknown_ = vocabulary_.id_of(*unknown_name_).value_or(-1);
  prefix_ = model.optional_text("continuing_subword_prefix").value_or("");
  suffix_ = model.optional_text("end_of_word_suffix").value_or("");
  fuse_unknown_ = model.flag("fuse_unk", false);
  byte_fallback_ = model.flag("byte_fallback", false);
  ignore_merges_ = model.flag("ignore_merges", false);
  read_merges(model.at("merges"));
  if (byte_level_) prepare_bytes();
  if (!plain_bytes_) prepare_characters();
  if (!byte_level_) prepare_cuts();
}

void Bpe::read_merges(const JsonNode& merges) {
  const nlohmann::json& list = merges.value();
  if (!list.is_array()) merges.refuse(fmt::format("must be a list, is {}", list.type_name()));
  merges_ = MergeTable(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const nlohmann::json& item = list[i];
    const auto rank = static_cast<std::uint32_t>(i);
    const auto node = [&] { return JsonNode(item, fmt::format("{}[{}]", merges.where(), i)); };
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      add_merge(item[0].get_ref<const std::string&>(), item[1].get_ref<const std::string&>(), rank, node());
      continue;
    }
    if (!item.is_string()) node().refuse("must be \"a b\" or [\"a\", \"b\"]");
    const std::string_view text = item.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      node().refuse(fmt::format("must be two tokens with one space between them, is \"{}\"", text));
    add_merge(text.substr(0, space), text.substr(space + 1), rank, node());
  }
}

void Bpe::add_merge(std::string_view a, std::string_view b, std::uint32_t rank, const JsonNode& node) {
  // A merge that adds nothing would never end.
  if (a.empty() || b.size() <= prefix_.size()) node.refuse("joins an empty token");
  std::string both(a);
  both += b.substr(prefix_.size());
  const auto id = [&](std::string_view token) {
    const auto found = vocabulary_.id_of(token);
    if (!found) node.refuse(fmt::format("token \"{}\" is not in the vocabulary", token));
    return static_cast<std::uint32_t>(*found);
  };
  const std::uint64_t key = pair_key(id(a), id(b));
  merges_[key] = {rank, static_cast<std::int32_t>(id(both))};
}

// Where every byte is a token and words carry no marks, a word's bytes are its first symbols.
void Bpe::prepare_bytes() {
  plain_bytes_ = prefix_.empty() && suffix_.empty();
  for (std::size_t b = 0; b < 256; ++b) {
    byte_ids_[b] = vocabulary_.id_of(byte_level_spellings()[b]).value_or(-1);
    // A byte that is no token: nothing comes of it, unless something stands in for it.
    if (byte_ids_[b] < 0 && (unknown_name_ || byte_fallback_)) plain_bytes_ = false;
  }
  if (!plain_bytes_ || !ignore_merges_) return;
  static const nlohmann::json nothing;
  const JsonNode node(nothing, "vocab");
  vocabulary_.each([&](const std::string& token, std::int32_t id) {
    if (auto bytes = bytes_of_spelling(token)) whole_.add(std::move(*bytes), id, node);
  });
}

void Bpe::prepare_characters() {
  for (std::size_t b = 0; b < 256 && byte_fallback_; ++b)
    byte_ids_[b] = vocabulary_.id_of(fmt::format("<0x{:02X}>", b)).value_or(-1);
  ascii_ids_.fill(-1);
  if (!prefix_.empty() || !suffix_.empty()) return;
  vocabulary_.each([&](const std::string& token, std::int32_t id) {
    if (token.empty() || utf8_length(token[0]) != token.size()) return;
    std::size_t at = 0;
    const char32_t c = next_code_point(token, at);
    if (c < 128)
      ascii_ids_[c] = id;
    else
      character_ids_[c] = id;
  });
}

// Which characters stand side by side in some token that merges make. Where the others meet, nothing ever crosses, so a
// word can be cut there; unless words are marked, some characters are no tokens, or bytes that stand in for a character
// take part in merges.
void Bpe::prepare_cuts() {
  if (!prefix_.empty() || !suffix_.empty()) return;
  // A character that is left out lets its neighbours meet.
  if (!byte_fallback_ || !std::all_of(byte_ids_.begin(), byte_ids_.end(), [](int id) { return id >= 0; })) return;
  FlatMap<bool> fallback(256);
  for (const std::int32_t id : byte_ids_) fallback[static_cast<std::uint64_t>(id)] = true;
  bool sound = true;
  merges_.each([&](std::uint64_t pair, const Merge& merge) {
    if (fallback.find(pair >> 32) != nullptr || fallback.find(pair & 0xFFFFFFFF) != nullptr) sound = false;
    const std::string& token = *vocabulary_.spelling(merge.id);
    char32_t left = 0;
    for (std::size_t at = 0; at < token.size();) {
      const bool begins = at == 0;
      const char32_t right = next_code_point(token, at);
      if (!begins) joined_[pair_key(left, right)] = true;
      left = right;
    }
  });
  may_cut_ = sound;
}

std::optional<std::int32_t> Bpe::character(std::string_view spelling, char32_t c, bool first, bool last) const {
  if (prefix_.empty() && suffix_.empty()) {
    if (c < 128) return ascii_ids_[c] < 0 ? std::nullopt : std::optional(ascii_ids_[c]);
    const std::int32_t* id = character_ids_.find(c);
    return id == nullptr ? std::nullopt : std::optional(*id);
  }
  std::string marked = first ? std::string() : prefix_;
  marked += spelling;
  if (last) marked += suffix_;
  return vocabulary_.id_of(marked);
}

void Bpe::start_bytes(std::string_view word, std::vector<std::int32_t>& symbols) const {
  symbols.resize(word.size());
  std::size_t count = 0;
  for (const char c : word) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) symbols[count++] = id;
  }
  symbols.resize(count);
}

void Bpe::start_characters(std::string_view word, std::vector<std::int32_t>& symbols) const {
  symbols.clear();
  bool unknown_waits = false;  // runs of unknown characters may count as one
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(word, at);
    const std::string_view spelling = word.substr(begin, at - begin);
    const bool first = begin == 0;
    const bool last = at == word.size();
    if (const auto id = character(spelling, c, first, last)) {
      if (std::exchange(unknown_waits, false)) symbols.push_back(unknown_);
      symbols.push_back(*id);
      continue;
    }
    if (byte_fallback_) {
      // The marks of a character fall back with it.
      std::string marked = first ? std::string() : prefix_;
      marked += spelling;
      if (last) marked += suffix_;
      const auto known = [&](char b) { return byte_ids_[static_cast<unsigned char>(b)] >= 0; };
      if (std::all_of(marked.begin(), marked.end(), known)) {
        for (const char b : marked) symbols.push_back(byte_ids_[static_cast<unsigned char>(b)]);
        continue;
      }
    }
    if (!unknown_name_) continue;
    if (unknown_ < 0)
      fail("the tokenizer has no token for \"{}\", and its unknown token \"{}\" is not in the vocabulary", spelling,
           *unknown_name_);
    if (unknown_waits && !fuse_unknown_) symbols.push_back(unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(unknown_);
}

void Bpe::encode(std::string_view word, MergeScratch& scratch, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (word.size() > kLongestWord) fail("a word of {} bytes is too long to encode", word.size());
  if (plain_bytes_) {
    if (ignore_merges_)
      if (const auto id = whole_.id_of(word)) return ids.push_back(*id);
    start_bytes(word, scratch.symbols);
  } else {
    std::string spelled;
    if (byte_level_) {
      spelled = spell_bytes(word);
      word = spelled;
    }
    if (ignore_merges_)
      if (const auto id = vocabulary_.id_of(word)) return ids.push_back(*id);
    start_characters(word, scratch.symbols);
  }
  merge_symbols(merges_, scratch);
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

}  // namespace trireme::data
