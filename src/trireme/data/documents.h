#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/mapped_file.h"
#include "trireme/data/text_files.h"
#include "trireme/data/tokenizer/tokenizer.h"

namespace trireme::data {

// Whether a file holds JSON lines, by its name: one document in each line.
bool holds_json_lines(const std::string& path);

// A document as it lies in its file, or a part of a long one.
struct Document {
  std::shared_ptr<const MappedFile> owner;
  std::string_view bytes;  // of a short JSON line: the whole line
  bool escaped = false;    // of a long one: a part of the text, as it is written there
  const TextFile* file = nullptr;
  std::int64_t line = 0;         // JSON lines: from 1; 0 elsewhere
  std::uint64_t file_bytes = 0;  // of the file, that are done with when this is
  bool ends = true;              // the document ends with this part

  // The text itself, bytes that are not UTF-8 replaced by U+FFFD in JSON lines. Refuses, naming file and line, what is
  // no JSON object or lacks the field.
  std::string_view text(const std::string& field, std::string& storage) const;
};

// The documents of files in order, without reading more than is asked for: a text file is one document, a file of JSON
// lines has one in each line that is not empty. Files are mapped, so they may be larger than memory, and so may
// documents: long ones come in parts. What of a file was read stays in memory until `release`.
class DocumentReader {
 public:
  // `cuts`: where documents may be cut. The files must outlive this.
  DocumentReader(std::span<const TextFile> files, Cuts cuts, std::string field)
      : files_(files), cuts_(cuts), field_(std::move(field)) {}

  // The next documents, together about `bytes`; none at the end. Refuses a long JSON line as Document::text does.
  std::vector<Document> next(std::uint64_t bytes);

  // Gives the memory back that the files of these documents take, from the first of them on; they may still be read.
  static void release(std::span<const Document> documents);

 private:
  Document take_part(std::string_view& rest, bool escaped) const;
  bool take_line(Document& document);
  std::size_t line_end() const;

  std::span<const TextFile> files_;
  Cuts cuts_;
  std::string field_;
  std::size_t file_ = 0;
  std::shared_ptr<const MappedFile> open_;
  std::string_view rest_;     // of the open file
  std::string_view rest_of_;  // of the text of a long line
  std::uint64_t around_ = 0;  // bytes of that line outside its text
  bool within_line_ = false;
  std::int64_t line_ = 0;
};

}  // namespace trireme::data
