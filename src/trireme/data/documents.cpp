#include "trireme/data/documents.h"

#include <algorithm>
#include <filesystem>

#include "trireme/core/text.h"
#include "trireme/data/cut_text.h"
#include "trireme/data/json_field.h"

namespace trireme::data {
namespace {

// A line up to here is parsed whole, when its text is asked for.
constexpr std::size_t kLongLine = 2 * kPart;

const char* begin_of(const MappedFile& file) { return reinterpret_cast<const char*>(file.bytes().data()); }

void release_range(const MappedFile& file, const char* first, const char* last) {
  file.release(static_cast<std::size_t>(first - begin_of(file)), static_cast<std::size_t>(last - first));
}

}  // namespace

bool holds_json_lines(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

std::string_view Document::text(const std::string& field, std::string& storage) const {
  if (line == 0) return bytes;
  if (escaped)
    unescape(bytes, storage);
  else
    read_field(bytes, field, fmt::format("{}:{}", file->path, line), storage);
  return storage;
}

Document DocumentReader::take_part(std::string_view& rest, bool escaped) const {
  Document document;
  document.bytes = rest.substr(0, next_part(rest, cuts_, escaped));
  document.escaped = escaped;
  document.file_bytes = document.bytes.size();
  rest.remove_prefix(document.bytes.size());
  document.ends = rest.empty();
  return document;
}

// Looks for the end of the line without keeping it in memory.
std::size_t DocumentReader::line_end() const {
  constexpr std::size_t kWindow = std::size_t{1} << 20;
  for (std::size_t at = 0; at < rest_.size(); at += kWindow) {
    const std::string_view window = rest_.substr(at, kWindow);
    if (const std::size_t found = window.find('\n'); found != std::string_view::npos) return at + found;
    release_range(*open_, window.data(), window.data() + window.size());
  }
  return rest_.size();
}

bool DocumentReader::take_line(Document& document) {
  while (!within_line_ && !rest_.empty()) {
    const std::size_t end = line_end();
    const std::size_t whole = std::min(end + 1, rest_.size());
    const std::string_view line = trim(rest_.substr(0, end));
    rest_.remove_prefix(whole);
    ++line_;
    if (line.empty()) continue;
    if (line.size() <= kLongLine) {
      document.bytes = line;
      document.line = line_;
      document.file_bytes = whole;
      return true;
    }
    rest_of_ = find_field(line, field_, fmt::format("{}:{}", files_[file_].path, line_), *open_);
    around_ = whole - rest_of_.size();
    within_line_ = true;
  }
  if (!within_line_) return false;
  document = take_part(rest_of_, true);
  document.line = line_;
  within_line_ = !document.ends;
  if (document.ends) document.file_bytes += around_;
  return true;
}

std::vector<Document> DocumentReader::next(std::uint64_t bytes) {
  std::vector<Document> documents;
  std::uint64_t taken = 0;
  while (taken < bytes && file_ < files_.size()) {
    const TextFile& file = files_[file_];
    if (!open_) {
      open_ = std::make_shared<const MappedFile>(file.path);
      rest_ = {begin_of(*open_), open_->bytes().size()};
      line_ = 0;
    }
    Document document;
    bool have = within_line_ || !rest_.empty();
    if (have && holds_json_lines(file.path))
      have = take_line(document);
    else if (have)
      document = take_part(rest_, false);
    if (have) {
      document.owner = open_;
      document.file = &file;
      taken += document.bytes.size() + sizeof document;
      documents.push_back(std::move(document));
    }
    if (rest_.empty() && !within_line_) {
      open_.reset();
      ++file_;
    }
  }
  return documents;
}

void DocumentReader::release(std::span<const Document> documents) {
  for (std::size_t i = 0; i < documents.size();) {
    const Document& first = documents[i];
    std::size_t last = i;
    while (last + 1 < documents.size() && documents[last + 1].owner == first.owner) ++last;
    const std::string_view end = documents[last].bytes;
    release_range(*first.owner, first.bytes.data(), end.data() + end.size());
    i = last + 1;
  }
}

}  // namespace trireme::data
