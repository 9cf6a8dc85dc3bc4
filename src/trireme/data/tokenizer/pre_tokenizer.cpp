#include "trireme/data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/data/tokenizer/known_patterns.h"
#include "trireme/data/tokenizer/pattern.h"
#include "trireme/data/tokenizer/split.h"
#include "trireme/data/tokenizer/unicode.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

// Cuts each piece where `spans_of(text, spans)` says.
template <class F>
void cut(Pieces& pieces, SplitBehavior behavior, F&& spans_of) {
  std::vector<Span> spans;
  pieces.next.clear();
  for (const Piece& piece : pieces.list) {
    spans.clear();
    spans_of(piece.text, spans);
    arrange(behavior, spans);
    for (const Span& span : spans)
      if (span.begin < span.end)
        pieces.next.push_back({piece.text.substr(span.begin, span.end - span.begin), piece.first && span.begin == 0});
  }
  std::swap(pieces.list, pieces.next);
}

// Spans of characters for which `is` holds, each alone, and of what lies between them.
template <class F>
void characters(std::string_view text, std::vector<Span>& spans, F&& is) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (!is(next_code_point(text, at))) continue;
    if (done < begin) spans.push_back({done, begin, false});
    spans.push_back({begin, at, true});
    done = at;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
}

class SplitByPattern final : public PreTokenizer {
 public:
  SplitByPattern(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    cut(pieces, behavior_, [&](std::string_view text, std::vector<Span>& spans) {
      std::size_t done = 0;
      pattern_.each(text, scratch, [&](std::size_t begin, std::size_t end) {
        if (done != begin) spans.push_back({done, begin, invert_});
        spans.push_back({begin, end, !invert_});
        done = end;
      });
      if (done != text.size()) spans.push_back({done, text.size(), invert_});
    });
  }
  const Regex* isolates() const override { return behavior_ == SplitBehavior::isolated ? pattern_.regex() : nullptr; }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual) : behavior_(individual ? SplitBehavior::isolated : SplitBehavior::contiguous) {}
  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    cut(pieces, behavior_, [](std::string_view text, std::vector<Span>& spans) { characters(text, spans, is_number); });
  }

 private:
  SplitBehavior behavior_;
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(SplitBehavior behavior) : behavior_(behavior) {}
  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    cut(pieces, behavior_,
        [](std::string_view text, std::vector<Span>& spans) { characters(text, spans, is_punctuation); });
  }

 private:
  SplitBehavior behavior_;
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    cut(pieces, SplitBehavior::removed,
        [](std::string_view text, std::vector<Span>& spans) { characters(text, spans, is_white_space); });
  }
};

// Runs of word characters and runs of others; white space goes.
class Whitespace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    cut(pieces, SplitBehavior::removed, [](std::string_view text, std::vector<Span>& spans) {
      enum class Kind { space, word, other };
      Kind last = Kind::space;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t c = next_code_point(text, at);
        const Kind kind = is_word(c) ? Kind::word : is_white_space(c) ? Kind::space : Kind::other;
        if (kind != Kind::space && kind == last)
          spans.back().end = at;
        else
          spans.push_back({begin, at, kind == Kind::space});
        last = kind;
      }
    });
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool prefix, bool use_regex) : prefix_(prefix) {
    if (use_regex) regex_.emplace(std::string(kKnownPatterns[0].expression), "pre_tokenizer");
  }
  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    if (prefix_)
      for (Piece& piece : pieces.list)
        if (!piece.text.starts_with(' ')) piece.text = pieces.keep(" " + std::string(piece.text));
    if (!regex_) return;
    cut(pieces, SplitBehavior::isolated, [&](std::string_view text, std::vector<Span>& spans) {
      regex_->each(text, scratch, [&](std::size_t begin, std::size_t end) { spans.push_back({begin, end, true}); });
    });
  }
  const Regex* isolates() const override { return regex_ && !prefix_ ? &*regex_ : nullptr; }

 private:
  bool prefix_;
  std::optional<Regex> regex_;
};

// Spells each byte as a character.
class SpellBytes final : public PreTokenizer {
 public:
  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    for (Piece& piece : pieces.list) piece.text = pieces.keep(spell_bytes(piece.text));
  }
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Scheme { always, first, never };
  Metaspace(std::string replacement, Scheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  void apply(Pieces& pieces, RegexScratch& /*scratch*/) const override {
    for (Piece& piece : pieces.list) {
      std::string text;
      text.reserve(piece.text.size() + piece.text.size() / 2 + replacement_.size());
      for (const char c : piece.text)
        if (c == ' ')
          text += replacement_;
        else
          text += c;
      if ((scheme_ == Scheme::always || (scheme_ == Scheme::first && piece.first)) && !text.starts_with(replacement_))
        text.insert(0, replacement_);
      piece.text = pieces.keep(std::move(text));
    }
    if (!split_) return;
    cut(pieces, SplitBehavior::merged_with_next, [&](std::string_view text, std::vector<Span>& spans) {
      std::size_t done = 0;
      for (std::size_t at = 0; (at = text.find(replacement_, at)) != std::string_view::npos;) {
        if (done < at) spans.push_back({done, at, false});
        spans.push_back({at, at + replacement_.size(), true});
        done = at += replacement_.size();
      }
      if (done < text.size()) spans.push_back({done, text.size(), false});
    });
  }

 private:
  std::string replacement_;
  Scheme scheme_;
  bool split_;
};

std::unique_ptr<const PreTokenizer> read_metaspace(const JsonNode& node) {
  const std::string replacement = node.text("replacement");
  if (replacement.empty() || utf8_length(replacement[0]) != replacement.size())
    node.at("replacement").refuse("must be one character");
  const std::string name =
      node.optional_text("prepend_scheme").value_or(node.flag("add_prefix_space", true) ? "always" : "never");
  Metaspace::Scheme scheme{};
  if (name == "always")
    scheme = Metaspace::Scheme::always;
  else if (name == "first")
    scheme = Metaspace::Scheme::first;
  else if (name == "never")
    scheme = Metaspace::Scheme::never;
  else
    node.at("prepend_scheme").refuse("must be \"always\", \"first\" or \"never\", is \"" + name + "\"");
  return std::make_unique<Metaspace>(replacement, scheme, node.flag("split", true));
}

constexpr std::string_view kPreTokenizers =
    "ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit, Sequence";

struct Reader {
  PreTokenizers& result;
  bool known_cuts_only = true;

  void read(const JsonNode& node, int depth) {
    const std::string type = node.text("type");
    auto& steps = result.steps;
    if (type == "Sequence") {
      if (depth >= kDeepestSequence) node.refuse("sequences are nested too deep");
      for (const JsonNode& item : node.at("pretokenizers").items()) read(item, depth + 1);
      return;
    }
    // Bytes were spelled, but not as the last thing.
    if (std::exchange(result.byte_level, false)) steps.push_back(std::make_unique<SpellBytes>());
    if (type == "ByteLevel") {
      const bool prefix = node.flag("add_prefix_space", true);
      const bool use_regex = node.flag("use_regex", true);
      if (prefix || use_regex) steps.push_back(std::make_unique<ByteLevel>(prefix, use_regex));
      known_cuts_only = known_cuts_only && !prefix;
      result.byte_level = true;
    } else if (type == "Split") {
      Pattern pattern(node.at("pattern"));
      const SplitBehavior behavior = read_behavior(node.at("behavior"));
      known_cuts_only = known_cuts_only && behavior == SplitBehavior::isolated && pattern.regex() != nullptr &&
                        keeps_lines_apart(pattern.source());
      steps.push_back(std::make_unique<SplitByPattern>(std::move(pattern), behavior, node.flag("invert", false)));
    } else if (type == "Digits") {
      steps.push_back(std::make_unique<Digits>(node.flag("individual_digits", false)));
    } else if (type == "Metaspace") {
      known_cuts_only = false;
      steps.push_back(read_metaspace(node));
    } else if (type == "Punctuation") {
      const auto behavior = node.find("behavior");
      known_cuts_only = false;
      steps.push_back(std::make_unique<Punctuation>(behavior ? read_behavior(*behavior) : SplitBehavior::isolated));
    } else if (type == "Whitespace") {
      steps.push_back(std::make_unique<Whitespace>());
    } else if (type == "WhitespaceSplit") {
      steps.push_back(std::make_unique<WhitespaceSplit>());
    } else {
      node.refuse_type(type, kPreTokenizers);
    }
  }
};

}  // namespace

PreTokenizers read_pre_tokenizers(const JsonNode& node) {
  PreTokenizers result;
  Reader reader{result};
  reader.read(node, 0);
  result.lines_are_apart = reader.known_cuts_only && !result.steps.empty();
  return result;
}

}  // namespace trireme::data
