#include "trireme/data/json_field.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/json_escapes.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

// A line's bytes for the parser, without the insides of long strings: of these it is shown the beginning and whatever
// may be wrong. Says where the last string was.
class Skim {
 public:
  Skim(std::string_view line, const MappedFile& file)
      : begin_(line.data()), at_(begin_), end_(begin_ + line.size()), released_(begin_), file_(file) {
    settle();
  }

  bool done() const { return instead_.empty() && at_ == end_; }
  char next() const { return instead_.empty() ? *at_ : instead_.front(); }
  void step() {
    if (!instead_.empty()) {
      instead_.remove_prefix(1);
    } else {
      const char c = *at_++;
      if (left_ > 0) {
        --left_;
        if (c == 'u' && at_[-2] == '\\') left_ = 4;
      } else if (!in_string_ && c == '"') {
        in_string_ = true;
        string_ = at_;
        shown_ = 0;
      } else if (in_string_ && c == '"') {
        in_string_ = false;
        last_ = {string_, static_cast<std::size_t>(at_ - 1 - string_)};
      } else if (in_string_ && c == '\\') {
        left_ = 1;
      }
      ++shown_;
    }
    settle();
  }
  std::string_view last_string() const { return last_; }
  std::size_t position() const { return static_cast<std::size_t>(at_ - begin_); }

 private:
  static constexpr std::size_t kShown = 1024;

  // Skips what need not be shown, and puts U+FFFD in the place of what is no UTF-8.
  void settle() {
    if (!in_string_ || left_ > 0 || !instead_.empty()) return;
    if (shown_ >= kShown) skip();
    if (at_ == end_ || static_cast<unsigned char>(*at_) < 0x80) return;
    constexpr std::ptrdiff_t kLongest = 4;
    if (valid_utf8({at_, static_cast<std::size_t>(std::min(kLongest, end_ - at_))}) > 0) {
      left_ = utf8_length(*at_);  // with this byte
    } else {
      instead_ = kReplacement;
      ++at_;
    }
  }
  void skip() {
    while (at_ < end_ && *at_ != '"') {
      const auto c = static_cast<unsigned char>(*at_);
      if (c < ' ') break;
      std::size_t length = 1;
      if (c == '\\') length = valid_escape({at_, static_cast<std::size_t>(end_ - at_)});
      if (length == 0) break;
      at_ += length;
      release();
    }
  }
  void release() {
    constexpr std::ptrdiff_t kAtOnce = std::ptrdiff_t{1} << 20;
    if (at_ - released_ < kAtOnce) return;
    const auto* first = reinterpret_cast<const char*>(file_.bytes().data());
    file_.release(static_cast<std::size_t>(released_ - first), static_cast<std::size_t>(at_ - released_));
    released_ = at_;
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  const char* released_;
  const MappedFile& file_;
  const char* string_ = nullptr;
  std::string_view last_;
  std::string_view instead_;  // comes before what is at at_
  bool in_string_ = false;
  std::size_t left_ = 0;   // bytes of an escape or a character that are still to come
  std::size_t shown_ = 0;  // of this string
};

class SkimIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit SkimIterator(Skim* skim = nullptr) : skim_(skim) {}
  char operator*() const { return skim_->next(); }
  SkimIterator& operator++() {
    skim_->step();
    return *this;
  }
  SkimIterator operator++(int) {
    const SkimIterator before = *this;
    skim_->step();
    return before;
  }
  friend bool operator==(const SkimIterator& a, const SkimIterator& b) { return a.ended() == b.ended(); }

 private:
  bool ended() const { return skim_ == nullptr || skim_->done(); }
  Skim* skim_;
};

// Takes one string member out of an object and builds nothing else.
class FieldReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // With `skim` the string is only found.
  FieldReader(const std::string& field, std::string* value, const Skim* skim)
      : field_(field), value_(value), skim_(skim) {}

  std::string_view written;

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t /*value*/) override { return other(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return other(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return other(); }
  bool binary(binary_t& /*value*/) override { return other(); }
  bool string(string_t& value) override {
    if (!wanted_) return other();
    if (skim_ != nullptr)
      written = skim_->last_string();
    else
      *value_ = std::move(value);
    found_ = true;
    wanted_ = false;
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 0) object_ = true;
    ++depth_;
    return other();
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    ++depth_;
    return other();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == field_;
    named_ = named_ || wanted_;
    constexpr std::size_t kKeys = 100;
    if (keys_.size() < kKeys) keys_.push_back(std::move(name));
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    problem_ = fmt::format("no valid JSON (at byte {})", skim_ == nullptr ? position : skim_->position());
    return false;
  }

  void check(const std::string& where) const {
    if (!problem_.empty()) refuse("{}: {}", where, problem_);
    if (!object_) refuse("{}: must be a JSON object with the text in \"{}\"", where, field_);
    if (found_) return;
    if (named_) refuse("{}: \"{}\" must be a string", where, field_);
    const auto near = nearest(field_, keys_);
    refuse("{}: has no string \"{}\"; {}", where, field_,
           near            ? "did you mean \"" + *near + "\"?"
           : keys_.empty() ? "the object is empty"
                           : fmt::format("it has {}", fmt::join(keys_, ", ")));
  }

 private:
  bool other() {
    wanted_ = false;
    return true;
  }

  const std::string& field_;
  std::string* value_;
  const Skim* skim_;
  int depth_ = 0;
  bool wanted_ = false;  // the value that comes next is the field's
  bool named_ = false;
  bool found_ = false;
  bool object_ = false;
  std::string problem_;
  std::vector<std::string> keys_;  // of the object itself: the first of them
};

}  // namespace

void read_field(std::string_view line, const std::string& field, const std::string& where, std::string& text) {
  std::string repaired;
  if (valid_utf8(line) != line.size()) {
    repaired = to_utf8(line);
    line = repaired;
  }
  text.clear();
  FieldReader reader(field, &text, nullptr);
  nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
  reader.check(where);
}

std::string_view find_field(std::string_view line, const std::string& field, const std::string& where,
                            const MappedFile& file) {
  Skim skim(line, file);
  FieldReader reader(field, nullptr, &skim);
  nlohmann::json::sax_parse(SkimIterator(&skim), SkimIterator(), &reader);
  reader.check(where);
  return reader.written;
}

void unescape(std::string_view written, std::string& text) {
  std::string quoted;
  quoted.reserve(written.size() + 2);
  quoted += '"';
  if (valid_utf8(written) == written.size())
    quoted += written;
  else
    quoted += to_utf8(written);
  quoted += '"';
  text = nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace trireme::data
