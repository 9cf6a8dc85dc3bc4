#include "trireme/data/tokenizer/json_tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/utf8.h"
#include "trireme/data/tokenizer/word_cache.h"

namespace trireme::data {

struct JsonTokenizer::Scratch {
  RegexScratch regex;
  MergeScratch merge;
  WordCache cache;
  Pieces pieces;
};

// A scratch for the length of a call. At most as many exist as calls ran at once. What a long text made of it is not
// kept.
class JsonTokenizer::Lease {
 public:
  explicit Lease(const JsonTokenizer& owner, std::size_t text = 0) : owner_(&owner), keep_(text <= kLongText) {
    {
      const std::lock_guard lock(owner.mutex_);
      if (!owner.idle_.empty()) {
        scratch_ = std::move(owner.idle_.back());
        owner.idle_.pop_back();
      }
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  ~Lease() {
    if (!keep_) return;
    scratch_->pieces.clear();
    const std::lock_guard lock(owner_->mutex_);
    owner_->idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() const { return *scratch_; }

 private:
  static constexpr std::size_t kLongText = std::size_t{1} << 20;
  const JsonTokenizer* owner_;
  bool keep_;
  std::unique_ptr<Scratch> scratch_;
};

namespace {

// How vocabularies in common use call the token that ends a document. Only an added token counts: text about tokenizers
// may have taught a vocabulary such a name as an ordinary word.
constexpr std::array<std::string_view, 7> kEndNames = {"<|endoftext|>", "<|end_of_text|>",       "</s>", "<eos>",
                                                       "<|eos|>",       "<｜end▁of▁sentence｜>", "[EOS]"};

nlohmann::json parse(const std::string& text, const std::string& name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    refuse("{}: no valid JSON (at byte {})", name, e.byte);
  } catch (const nlohmann::json::exception&) {
    refuse("{}: no valid JSON", name);
  }
}

}  // namespace

JsonTokenizer::JsonTokenizer(std::string json, const std::string& name) : json_(std::move(json)) {
  const nlohmann::json document = parse(json_, name);
  try {
    read(JsonNode(document, name));
  } catch (const nlohmann::json::exception& e) {
    refuse("{}: {}", name, e.what());
  }
}

JsonTokenizer::~JsonTokenizer() = default;

// Expressions and what one call works with; its text, grown as it was read; and of each token and merge the entry in
// our tables, and that of the parsed document.
std::uint64_t JsonTokenizer::bytes() const {
  constexpr std::uint64_t kBase = std::uint64_t{8} << 20;
  constexpr std::uint64_t kToken = 256;
  constexpr std::uint64_t kMerge = 320;
  return kBase + 3 * json_.size() + kToken * (static_cast<std::uint64_t>(model_->vocabulary().size()) + added_.size()) +
         kMerge * model_->merges();
}

void JsonTokenizer::read(const JsonNode& root) {
  if (const auto node = root.find("normalizer")) normalizers_ = read_normalizers(*node);
  if (const auto node = root.find("pre_tokenizer")) cuts_ = read_pre_tokenizers(*node);
  const JsonNode model = root.at("model");
  // Old files do not say what kind they are; only byte-pair encoding has merges.
  const std::string type = model.optional_text("type").value_or(model.find("merges") ? "BPE" : "");
  if (type != "BPE") model.refuse_type(type, "BPE");
  model_ = std::make_unique<Bpe>(model, cuts_.byte_level);
  if (const auto node = root.find("post_processor")) frame_ = read_frame(*node);
  if (const auto node = root.find("decoder")) {
    has_decoder_ = true;
    decoders_ = read_decoders(*node);
  }
  if (cuts_.steps.size() == 1) only_cut_ = cuts_.steps[0]->isolates();

  const Vocabulary& words = model_->vocabulary();
  vocab_ = words.id_limit();
  if (cuts_.lines_are_apart && normalizers_.empty()) cut_at_ = Cuts::words;
  if (const auto node = root.find("added_tokens")) added_ = read_added_tokens(*node);
  const Lease scratch(*this);
  for (AddedToken& token : added_) {
    const auto known = words.id_of(token.content);
    if (known && *known != token.id)
      root.at("added_tokens")
          .refuse(
              fmt::format("token \"{}\" has id {}, but the vocabulary gives it {}", token.content, token.id, *known));
    vocab_ = std::max<std::int64_t>(vocab_, token.id + 1);
    added_by_id_[static_cast<std::uint64_t>(token.id)] = &token;
    if (token.content.find(' ') != std::string::npos) cut_at_ = std::min(cut_at_, Cuts::lines);
    if (token.lstrip || token.rstrip || token.content.find('\n') != std::string::npos) cut_at_ = Cuts::none;
    bool lost_start = false;
    if (token.normalized)
      for (const auto& step : normalizers_) step->apply(token.found, lost_start, (*scratch).regex);
    (token.normalized ? normalized_added_ : plain_added_).add(token);
  }
  if (vocab_ == 0) root.refuse("the vocabulary is empty");
  const auto check = [&](std::int32_t id) {
    if (id >= vocab_) root.at("post_processor").refuse(fmt::format("id {} is beyond the vocabulary of {}", id, vocab_));
  };
  std::for_each(frame_.before.begin(), frame_.before.end(), check);
  std::for_each(frame_.after.begin(), frame_.after.end(), check);
  for (const std::string_view name : kEndNames)
    for (const AddedToken& token : added_)
      if (!end_of_text_ && token.content == name) end_of_text_ = token.id;
}

void JsonTokenizer::encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids) const {
  std::string repaired;
  if (valid_utf8(text) != text.size()) {
    repaired = to_utf8(text);
    text = repaired;
  }
  const Lease lease(*this, text.size());
  Scratch& scratch = *lease;
  if (specials == Specials::add) ids.insert(ids.end(), frame_.before.begin(), frame_.before.end());
  plain_added_.cut(
      text,
      [&](std::size_t begin, std::size_t end) {
        encode_part(text.substr(begin, end - begin), begin == 0, scratch, ids);
      },
      [&](std::int32_t id) { ids.push_back(id); });
  if (specials == Specials::add) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
}

void JsonTokenizer::encode_part(std::string_view text, bool first, Scratch& scratch,
                                std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (!normalizers_.empty()) {
    normalized = text;
    bool lost_start = false;
    for (const auto& step : normalizers_) step->apply(normalized, lost_start, scratch.regex);
    text = normalized;
    first = first && !lost_start;
  }
  normalized_added_.cut(
      text,
      [&](std::size_t begin, std::size_t end) {
        encode_words(text.substr(begin, end - begin), first && begin == 0, scratch, ids);
      },
      [&](std::int32_t id) { ids.push_back(id); });
}

void JsonTokenizer::encode_words(std::string_view text, bool first, Scratch& scratch,
                                 std::vector<std::int32_t>& ids) const {
  const char* end_of_text = text.data() + text.size();
  if (only_cut_ != nullptr) {
    std::size_t done = 0;
    only_cut_->each(text, scratch.regex, [&](std::size_t begin, std::size_t end) {
      if (done < begin) encode_word(text.substr(done, begin - done), end_of_text, scratch, ids);
      if (begin < end) encode_word(text.substr(begin, end - begin), end_of_text, scratch, ids);
      done = end;
    });
    if (done < text.size()) encode_word(text.substr(done), end_of_text, scratch, ids);
    return;
  }
  Pieces& pieces = scratch.pieces;
  pieces.clear();
  pieces.list.push_back({text, first});
  for (const auto& step : cuts_.steps) step->apply(pieces, scratch.regex);
  for (const Piece& piece : pieces.list) {
    const char* end = piece.text.data() + piece.text.size();
    if (!model_->may_cut() || (model_->ignores_merges() && model_->vocabulary().id_of(piece.text))) {
      encode_word(piece.text, end, scratch, ids);
      continue;
    }
    // Text that comes uncut is cut where no merge reaches across: short words are quick and often known.
    std::size_t begin = 0;
    char32_t left = 0;
    for (std::size_t at = 0; at < piece.text.size();) {
      const std::size_t here = at;
      const char32_t right = next_code_point(piece.text, at);
      if (here > begin && !model_->joined(left, right)) {
        encode_word(piece.text.substr(begin, here - begin), end, scratch, ids);
        begin = here;
      }
      left = right;
    }
    if (begin < piece.text.size()) encode_word(piece.text.substr(begin), end, scratch, ids);
  }
}

void JsonTokenizer::encode_word(std::string_view word, const char* end, Scratch& scratch,
                                std::vector<std::int32_t>& ids) const {
  if (word.size() > WordCache::kLongestWord) return model_->encode(word, scratch.merge, ids);
  const WordCache::Key key = WordCache::key(word, static_cast<std::size_t>(end - word.data()));
  if (const auto known = scratch.cache.find(key)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return;
  }
  const std::size_t before = ids.size();
  model_->encode(word, scratch.merge, ids);
  scratch.cache.put(key, std::span(ids).subspan(before));
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids, Specials specials, bool whole) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (specials == Specials::none && is_special(id)) continue;
    if (auto token = token_of(id)) tokens.push_back(std::move(*token));
  }
  const Lease lease(*this);
  for (const auto& step : decoders_) step->apply(tokens, whole, (*lease).regex);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !has_decoder_) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids, Specials specials) const {
  return decode(ids, specials, true);
}

std::string JsonTokenizer::decode_bytes(std::span<const std::int32_t> ids, Specials specials) const {
  return decode(ids, specials, false);
}

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : added_)
    if (added.content == token) return added.id;
  return model_->vocabulary().id_of(token);
}

std::optional<std::string> JsonTokenizer::token_of(std::int32_t id) const {
  if (id < 0) return std::nullopt;
  if (const auto* added = added_by_id_.find(static_cast<std::uint64_t>(id))) return (*added)->found;
  const std::string* token = model_->vocabulary().spelling(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  if (id < 0) return false;
  const auto* added = added_by_id_.find(static_cast<std::uint64_t>(id));
  return added != nullptr && (*added)->special;
}

}  // namespace trireme::data
