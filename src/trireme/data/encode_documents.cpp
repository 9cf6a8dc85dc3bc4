#include "trireme/data/encode_documents.h"

#include <algorithm>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/thread_pool.h"
#include "trireme/data/cut_text.h"
#include "trireme/data/documents.h"

namespace trireme::data {
namespace {

constexpr std::uint64_t kTask = std::uint64_t{128} << 10;  // bytes of documents that one thread takes at a time
constexpr std::uint64_t kTasksPerThread = 8;

// Stated, not derived: what was measured (docs/memory.md), and somewhat more.
constexpr std::uint64_t kThread = std::uint64_t{12} << 20;  // texts, their tokens, words met before
constexpr std::uint64_t kByte = 64;                         // of a long text that is encoded at once

// Whether there is memory for this many bytes at `where`, which must be encoded at once.
void check_memory(const std::string& where, std::uint64_t bytes, const EncodeOptions& options) {
  const std::uint64_t needed = encoding_bytes(options.threads, bytes);
  if (needed > options.memory)
    refuse(
        "{}: {} of text must be encoded at once, since there is no place in it where this tokenizer lets it be cut; "
        "that takes up to {} of memory, and there is {}. Make several documents of it",
        where, format_bytes(bytes), format_bytes(needed), format_bytes(options.memory));
}

// What is known before anything is read.
void check_memory(std::span<const TextFile> files, const Tokenizer& tokenizer, const EncodeOptions& options) {
  if (const std::uint64_t least = encoding_bytes(options.threads, 0); least > options.memory)
    refuse("encoding text on {} threads takes up to {} of memory, and there is {}; take fewer threads", options.threads,
           format_bytes(least), format_bytes(options.memory));
  if (tokenizer.cuts() != Cuts::none) return;
  for (const TextFile& file : files)
    if (!holds_json_lines(file.path)) check_memory(file.path, file.bytes, options);
}

std::string place_of(const Document& document) {
  return document.line > 0 ? fmt::format("{}:{}", document.file->path, document.line) : document.file->path;
}

}  // namespace

std::uint64_t encoding_bytes(int threads, std::uint64_t longest) {
  return static_cast<std::uint64_t>(threads) * kThread + (longest > 2 * kPart ? longest * kByte : 0);
}

EncodeProgress encode_documents(std::span<const TextFile> files, const Tokenizer& tokenizer,
                                const EncodeOptions& options,
                                const std::function<void(std::span<const std::int32_t>)>& take) {
  EncodeProgress progress;
  for (const TextFile& file : files) progress.total_bytes += file.bytes;
  check_memory(files, tokenizer, options);
  const auto end = options.end_documents ? tokenizer.end_of_text() : std::nullopt;
  ThreadPool pool(options.threads);
  DocumentReader reader(files, tokenizer.cuts(), options.field);
  const std::uint64_t at_once = kTask * kTasksPerThread * static_cast<std::uint64_t>(pool.threads());
  for (;;) {
    const std::vector<Document> documents = reader.next(at_once);
    if (documents.empty()) break;
    std::vector<std::size_t> first = {0};  // document of each task
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      if (documents[i].bytes.size() > 2 * kPart)
        check_memory(place_of(documents[i]), documents[i].bytes.size(), options);
      progress.longest = std::max<std::uint64_t>(progress.longest, documents[i].bytes.size());
      progress.bytes += documents[i].file_bytes;
      bytes += documents[i].bytes.size();
      if (bytes < kTask && i + 1 < documents.size()) continue;
      first.push_back(i + 1);
      bytes = 0;
    }
    const std::size_t tasks = first.size() - 1;
    std::vector<std::vector<std::int32_t>> tokens(tasks);
    pool.run(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      const auto t = static_cast<std::size_t>(task);
      std::vector<std::int32_t>& out = tokens[t];
      std::size_t most = 0;  // as a rule
      for (std::size_t i = first[t]; i < first[t + 1]; ++i) most += documents[i].bytes.size() + 1;
      out.reserve(most);
      std::string storage;
      for (std::size_t i = first[t]; i < first[t + 1]; ++i) {
        tokenizer.encode(documents[i].text(options.field, storage), Specials::none, out);
        if (end && documents[i].ends) out.push_back(*end);
      }
    });
    for (std::vector<std::int32_t>& part : tokens) {
      progress.tokens += part.size();
      take(part);
      part = {};
    }
    for (const Document& document : documents) progress.documents += document.ends ? 1 : 0;
    DocumentReader::release(documents);
    if (options.progress) options.progress(progress);
  }
  progress.bytes = progress.total_bytes;
  return progress;
}

}  // namespace trireme::data
