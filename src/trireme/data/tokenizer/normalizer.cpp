#include "trireme/data/tokenizer/normalizer.h"

#include <utility>

#include "trireme/data/tokenizer/pattern.h"
#include "trireme/data/tokenizer/unicode.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(std::string& text, bool& /*lost_start*/, RegexScratch& /*scratch*/) const override {
    text = normal_form(text, form_);
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text, bool& /*lost_start*/, RegexScratch& /*scratch*/) const override {
    text = lower_case(text);
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string what) : what_(std::move(what)) {}
  void apply(std::string& text, bool& /*lost_start*/, RegexScratch& /*scratch*/) const override {
    if (!text.empty()) text.insert(0, what_);
  }

 private:
  std::string what_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, bool& lost_start, RegexScratch& scratch) const override {
    text = replace_all(pattern_, text, content_, scratch, &lost_start);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, bool& lost_start, RegexScratch& /*scratch*/) const override {
    std::size_t begin = text.size();
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t first = at;
      if (is_white_space(next_code_point(text, at))) continue;
      begin = std::min(begin, first);
      end = at;
    }
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    if (begin > 0) lost_start = true;
    text = begin < end ? text.substr(begin, end - begin) : std::string();
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text, bool& lost_start, RegexScratch& /*scratch*/) const override {
    std::string kept;
    kept.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t first = at;
      if (!is_mark(next_code_point(text, at)))
        kept.append(text, first, at - first);
      else if (kept.empty())
        lost_start = true;
    }
    text = std::move(kept);
  }
};

constexpr std::string_view kNormalizers =
    "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, StripAccents, Sequence";

void read(const JsonNode& node, int depth, std::vector<std::unique_ptr<const Normalizer>>& steps) {
  const std::string type = node.text("type");
  if (type == "Sequence") {
    if (depth >= kDeepestSequence) node.refuse("sequences are nested too deep");
    for (const JsonNode& item : node.at("normalizers").items()) read(item, depth + 1, steps);
  } else if (type == "NFC") {
    steps.push_back(std::make_unique<UnicodeForm>(NormalForm::nfc));
  } else if (type == "NFD") {
    steps.push_back(std::make_unique<UnicodeForm>(NormalForm::nfd));
  } else if (type == "NFKC") {
    steps.push_back(std::make_unique<UnicodeForm>(NormalForm::nfkc));
  } else if (type == "NFKD") {
    steps.push_back(std::make_unique<UnicodeForm>(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    steps.push_back(std::make_unique<Lowercase>());
  } else if (type == "Prepend") {
    steps.push_back(std::make_unique<Prepend>(node.text("prepend")));
  } else if (type == "Replace") {
    steps.push_back(std::make_unique<Replace>(Pattern(node.at("pattern")), node.text("content")));
  } else if (type == "Strip") {
    steps.push_back(std::make_unique<Strip>(node.flag("strip_left", true), node.flag("strip_right", true)));
  } else if (type == "StripAccents") {
    steps.push_back(std::make_unique<StripAccents>());
  } else {
    node.refuse_type(type, kNormalizers);
  }
}

}  // namespace

std::vector<std::unique_ptr<const Normalizer>> read_normalizers(const JsonNode& node) {
  std::vector<std::unique_ptr<const Normalizer>> steps;
  read(node, 0, steps);
  return steps;
}

}  // namespace trireme::data
