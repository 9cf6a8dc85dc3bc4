#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/mapped_file.h"
#include "trireme/data/text_files.h"

namespace trireme::data {

// Whether a file holds JSON lines, by its name: one document in each line.
bool holds_json_lines(const std::string& path);

// A document as it lies in its file, or a part of a long one.
struct Document {
  std::shared_ptr<const MappedFile> owner;
  std::string_view bytes;  // of a JSON line: the whole line
  const TextFile* file = nullptr;
  std::int64_t line = 0;  // JSON lines: from 1; 0 elsewhere
  bool ends = true;       // the document ends with this part

  // The text itself, bytes that are not UTF-8 replaced by U+FFFD in JSON lines. Refuses, naming file and line, what is
  // no JSON object or lacks the field.
  std::string_view text(const std::string& field, std::string& storage) const;
};

// The documents of files in order, without reading more than is asked for: a text file is one document, a file of JSON
// lines has one in each line that is not empty. Files are mapped, so they may be larger than memory.
class DocumentReader {
 public:
  // `cut_at_lines`: long text files come in parts that end at a newline between two printable ASCII characters. The
  // files must outlive this.
  DocumentReader(std::span<const TextFile> files, bool cut_at_lines) : files_(files), cut_(cut_at_lines) {}

  // The next documents, together about `bytes`; none at the end.
  std::vector<Document> next(std::uint64_t bytes);

 private:
  Document take_text();
  bool take_line(Document& document);

  std::span<const TextFile> files_;
  bool cut_;
  std::size_t file_ = 0;
  std::shared_ptr<const MappedFile> open_;
  std::string_view rest_;  // of the open file
  std::int64_t line_ = 0;
};

}  // namespace trireme::data
