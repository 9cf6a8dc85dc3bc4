#include "trireme/data/documents.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

// Parts of long text files: enough of them to keep many threads busy, long enough to cost nothing.
constexpr std::size_t kPart = std::size_t{256} << 10;

// Takes one string member out of an object and builds nothing else.
class FieldReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldReader(const std::string& field, std::string& value) : field_(field), value_(value) {}

  bool found = false;
  bool object = false;
  std::string problem;
  std::vector<std::string> keys;  // of the object itself

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t /*value*/) override { return other(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return other(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return other(); }
  bool binary(binary_t& /*value*/) override { return other(); }
  bool string(string_t& value) override {
    if (!wanted_) return other();
    value_ = std::move(value);
    found = true;
    wanted_ = false;
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 0) object = true;
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
    keys.push_back(std::move(name));
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    problem = fmt::format("no valid JSON (at byte {})", position);
    return false;
  }

 private:
  bool other() {
    wanted_ = false;
    return true;
  }

  const std::string& field_;
  std::string& value_;
  int depth_ = 0;
  bool wanted_ = false;  // the value that comes next is the field's
};

bool printable_ascii(char c) { return c > ' ' && c < 0x7F; }

}  // namespace

bool holds_json_lines(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

std::string_view Document::text(const std::string& field, std::string& storage) const {
  if (line == 0) return bytes;
  std::string repaired;
  std::string_view json = bytes;
  if (valid_utf8(json) != json.size()) {
    repaired = to_utf8(json);
    json = repaired;
  }
  storage.clear();
  FieldReader reader(field, storage);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.problem.empty()) refuse("{}:{}: {}", file->path, line, reader.problem);
  if (!reader.object) refuse("{}:{}: must be a JSON object with the text in \"{}\"", file->path, line, field);
  if (!reader.found && std::find(reader.keys.begin(), reader.keys.end(), field) != reader.keys.end())
    refuse("{}:{}: \"{}\" must be a string, and is something else", file->path, line, field);
  if (!reader.found) {
    const auto near = nearest(field, reader.keys);
    refuse("{}:{}: has no string \"{}\"; {}", file->path, line, field,
           near                  ? "did you mean \"" + *near + "\"?"
           : reader.keys.empty() ? "the object is empty"
                                 : fmt::format("it has {}", fmt::join(reader.keys, ", ")));
  }
  return storage;
}

Document DocumentReader::take_text() {
  Document document;
  std::size_t size = rest_.size();
  if (cut_ && size > 2 * kPart)
    for (std::size_t at = kPart; (at = rest_.find('\n', at)) != std::string_view::npos && at + 1 < rest_.size(); ++at)
      if (printable_ascii(rest_[at - 1]) && printable_ascii(rest_[at + 1])) {
        size = at + 1;
        break;
      }
  document.bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  document.ends = rest_.empty();
  return document;
}

bool DocumentReader::take_line(Document& document) {
  while (!rest_.empty()) {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    document.bytes = trim(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    document.line = ++line_;
    if (!document.bytes.empty()) return true;
  }
  return false;
}

std::vector<Document> DocumentReader::next(std::uint64_t bytes) {
  std::vector<Document> documents;
  std::uint64_t taken = 0;
  while (taken < bytes && file_ < files_.size()) {
    const TextFile& file = files_[file_];
    if (!open_) {
      open_ = std::make_shared<const MappedFile>(file.path);
      rest_ = {reinterpret_cast<const char*>(open_->bytes().data()), open_->bytes().size()};
      line_ = 0;
    }
    Document document;
    bool have = !rest_.empty();
    if (have && holds_json_lines(file.path))
      have = take_line(document);
    else if (have)
      document = take_text();
    if (have) {
      document.owner = open_;
      document.file = &file;
      taken += document.bytes.size() + 1;
      documents.push_back(std::move(document));
    }
    if (rest_.empty()) {
      open_.reset();
      ++file_;
    }
  }
  return documents;
}

}  // namespace trireme::data
