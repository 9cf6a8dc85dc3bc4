#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/json_node.h"
#include "trireme/data/tokenizer/regex.h"

namespace trireme::data {

// A part of the text on its way to becoming words.
struct Piece {
  std::string_view text;
  bool first = false;  // begins where the whole text begins
};

// The pieces of one text. Texts that steps make live here until `clear`.
struct Pieces {
  std::vector<Piece> list;
  std::vector<Piece> next;  // what a step makes of `list`
  std::deque<std::string> made;

  std::string_view keep(std::string text) { return made.emplace_back(std::move(text)); }
  void clear() {
    list.clear();
    made.clear();
  }
};

// One step of cutting text into words.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces, RegexScratch& scratch) const = 0;

  // When all that this step does is cut around every match of one expression, keeping everything: that expression.
  virtual const Regex* isolates() const { return nullptr; }
};

// What "pre_tokenizer" describes, sequences flattened.
struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  // The last step spelled bytes as characters (byte_level.h); it has been left out, and the caller that takes the words
  // does that or works on bytes.
  bool byte_level = false;
  // encode(a + b) is encode(a) and encode(b) wherever a single newline with no white space on either side ends a, or a
  // single space begins b that stands between two letters.
  bool lines_are_apart = false;
};
PreTokenizers read_pre_tokenizers(const JsonNode& node);

}  // namespace trireme::data
