#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/flat_map.h"
#include "trireme/data/tokenizer/json_node.h"

namespace trireme::data {

// A token that is looked for in the text itself, before anything else happens to it.
struct AddedToken {
  std::string content;
  std::string found;  // what is looked for and what it decodes to: normalised where `normalized` says so
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = true;    // looked for in normalised text
};
std::vector<AddedToken> read_added_tokens(const JsonNode& list);

// Finds any of several tokens in a text: leftmost first, the longest of those.
class AddedTokenFinder {
 public:
  // The token must outlive this.
  void add(const AddedToken& token);
  bool empty() const { return nodes_.size() == 1; }

  // Calls between(begin, end) for each part of `text` that is no token, unless empty, and token(id) for each token, in
  // order.
  template <class Between, class Token>
  void cut(std::string_view text, Between&& between, Token&& token) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      at = next_start(text, at);
      const Found found = longest(text, at);
      if (found.token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at;
      std::size_t end = at + found.length;
      at = end;
      if (found.token->single_word && touches_word(text, begin, end)) continue;
      if (found.token->lstrip) begin = std::max(space_before(text, begin), done);
      if (found.token->rstrip) end = space_behind(text, end);
      if (done < begin) between(done, begin);
      token(found.token->id);
      done = end;
    }
    if (done < text.size()) between(done, text.size());
  }

 private:
  struct Found {
    const AddedToken* token = nullptr;
    std::size_t length = 0;
  };
  // The first place from `at` on where a token could begin; text.size() when there is none.
  std::size_t next_start(std::string_view text, std::size_t at) const;
  Found longest(std::string_view text, std::size_t at) const;
  static bool touches_word(std::string_view text, std::size_t begin, std::size_t end);
  static std::size_t space_before(std::string_view text, std::size_t at);
  static std::size_t space_behind(std::string_view text, std::size_t at);

  std::array<bool, 256> starts_{};
  int start_count_ = 0;
  char only_start_ = '\0';
  FlatMap<std::uint32_t> edges_;                      // (node, byte) to node
  std::vector<const AddedToken*> nodes_ = {nullptr};  // the token that ends here
};

}  // namespace trireme::data
