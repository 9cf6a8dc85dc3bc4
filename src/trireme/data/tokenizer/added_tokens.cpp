#include "trireme/data/tokenizer/added_tokens.h"

#include <cstring>

#include "trireme/data/tokenizer/unicode.h"
#include "trireme/data/tokenizer/utf8.h"
#include "trireme/data/tokenizer/vocabulary.h"

namespace trireme::data {
namespace {

// The character that ends before `at`, and where it begins.
char32_t character_before(std::string_view text, std::size_t& at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  std::size_t begin = at;
  return next_code_point(text, begin);
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonNode& list) {
  std::vector<AddedToken> tokens;
  for (const JsonNode& node : list.items()) {
    AddedToken token;
    token.content = token.found = node.text("content");
    token.id = static_cast<std::int32_t>(node.at("id").integer(0, Vocabulary::kMaxIds - 1));
    token.special = node.flag("special", false);
    token.single_word = node.flag("single_word", false);
    token.lstrip = node.flag("lstrip", false);
    token.rstrip = node.flag("rstrip", false);
    token.normalized = node.flag("normalized", !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::add(const AddedToken& token) {
  const std::string& content = token.found;
  if (content.empty()) return;
  const auto first = static_cast<unsigned char>(content[0]);
  if (!starts_[first]) ++start_count_;
  starts_[first] = true;
  only_start_ = content[0];
  std::uint32_t node = 0;
  for (const char c : content) {
    std::uint32_t& edge = edges_[std::uint64_t{node} << 8 | static_cast<unsigned char>(c)];
    if (edge == 0) {
      edge = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back(nullptr);
    }
    node = edge;
  }
  if (nodes_[node] == nullptr) nodes_[node] = &token;
}

std::size_t AddedTokenFinder::next_start(std::string_view text, std::size_t at) const {
  if (start_count_ == 0) return text.size();
  if (start_count_ == 1) {
    const void* found = std::memchr(text.data() + at, only_start_, text.size() - at);
    return found == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

AddedTokenFinder::Found AddedTokenFinder::longest(std::string_view text, std::size_t at) const {
  Found found;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const std::uint32_t* edge = edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == nullptr) break;
    node = *edge;
    if (nodes_[node] != nullptr) found = {nodes_[node], i + 1 - at};
  }
  return found;
}

bool AddedTokenFinder::touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0) {
    std::size_t at = begin;
    if (is_word(character_before(text, at))) return true;
  }
  return end < text.size() && is_word(next_code_point(text, end));
}

std::size_t AddedTokenFinder::space_before(std::string_view text, std::size_t at) {
  while (at > 0) {
    std::size_t begin = at;
    if (!is_white_space(character_before(text, begin))) break;
    at = begin;
  }
  return at;
}

std::size_t AddedTokenFinder::space_behind(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t end = at;
    if (!is_white_space(next_code_point(text, end))) break;
    at = end;
  }
  return at;
}

}  // namespace trireme::data
