#include "trireme/data/tokenizer/decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/data/tokenizer/pattern.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(Tokens& tokens, bool whole, RegexScratch& /*scratch*/) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_spelling(token).value_or(token);
    tokens = {whole ? to_utf8(bytes) : std::move(bytes)};
  }
};

// "<0x41>"
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const char* first = token.data() + 3;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(first, first + 2, value, 16);
  if (error != std::errc() || end != first + 2) return std::nullopt;
  return static_cast<char>(value);
}

// Runs of byte tokens become the text they spell; a run that is no UTF-8 becomes one U+FFFD for each byte.
class ByteFallback final : public Decoder {
 public:
  void apply(Tokens& tokens, bool whole, RegexScratch& /*scratch*/) const override {
    Tokens out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (!whole || valid_utf8(run) == run.size())
        out.push_back(run);
      else
        out.insert(out.end(), run.size(), std::string(kReplacement));
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = fallback_byte(token)) {
        run += *byte;
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(Tokens& tokens, bool /*whole*/, RegexScratch& /*scratch*/) const override { tokens = {joined(tokens)}; }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, std::int64_t start, std::int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens, bool /*whole*/, RegexScratch& /*scratch*/) const override {
    for (std::string& token : tokens) {
      std::string_view left = token;
      for (std::int64_t i = 0; i < start_ && left.starts_with(content_); ++i) left.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && left.ends_with(content_); ++i) left.remove_suffix(content_.size());
      token = std::string(left);
    }
  }

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens, bool whole, RegexScratch& scratch) const override {
    for (std::string& token : tokens) {
      // Unfinished characters cannot be searched by an expression.
      if (!whole && pattern_.regex() != nullptr) token = to_utf8(token);
      token = replace_all(pattern_, token, content_, scratch);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void apply(Tokens& tokens, bool /*whole*/, RegexScratch& /*scratch*/) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string_view space = i == 0 && drop_first_ ? "" : " ";
      std::string out;
      std::string_view rest = tokens[i];
      for (std::size_t at = 0; (at = rest.find(replacement_)) != std::string_view::npos;) {
        out += rest.substr(0, at);
        out += space;
        rest.remove_prefix(at + replacement_.size());
      }
      out += rest;
      tokens[i] = std::move(out);
    }
  }

 private:
  std::string replacement_;
  bool drop_first_;
};

// Words end in a mark ("</w>"), which becomes a space.
class SuffixDecoder final : public Decoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens, bool /*whole*/, RegexScratch& /*scratch*/) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      for (std::size_t at = 0; (at = tokens[i].find(suffix_, at)) != std::string::npos;) {
        const std::string_view with = i + 1 == tokens.size() ? "" : " ";
        tokens[i].replace(at, suffix_.size(), with);
        at += with.size();
      }
  }

 private:
  std::string suffix_;
};

std::string one_character(const JsonNode& node) {
  std::string text = node.text();
  if (text.empty() || utf8_length(text[0]) != text.size()) node.refuse("must be one character");
  return text;
}

constexpr std::string_view kDecoders = "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, Sequence";

void read(const JsonNode& node, int depth, std::vector<std::unique_ptr<const Decoder>>& steps) {
  const std::string type = node.text("type");
  constexpr std::int64_t most = 1 << 20;
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) node.refuse("sequences are nested too deep");
    for (const JsonNode& item : node.at("decoders").items()) read(item, depth + 1, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<ByteLevelDecoder>());
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<Fuse>());
  } else if (type == "Strip") {
    steps.push_back(std::make_unique<StripDecoder>(one_character(node.at("content")), node.at("start").integer(0, most),
                                                   node.at("stop").integer(0, most)));
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<ReplaceDecoder>(Pattern(node.at("pattern")), node.text("content")));
  } else if (type == "Metaspace") {
    const std::string scheme =
        node.optional_text("prepend_scheme").value_or(node.flag("add_prefix_space", true) ? "always" : "never");
    steps.push_back(std::make_unique<MetaspaceDecoder>(one_character(node.at("replacement")), scheme != "never"));
  } else if (type == "BPEDecoder") {
    const std::string suffix = node.optional_text("suffix").value_or("</w>");
    if (suffix.empty()) node.at("suffix").refuse("must not be empty");
    steps.push_back(std::make_unique<SuffixDecoder>(suffix));
  } else {
    node.refuse_type(type, kDecoders);
  }
}

}  // namespace

std::vector<std::unique_ptr<const Decoder>> read_decoders(const JsonNode& node) {
  std::vector<std::unique_ptr<const Decoder>> steps;
  read(node, 0, steps);
  return steps;
}

}  // namespace trireme::data
