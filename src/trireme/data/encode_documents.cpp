#include "trireme/data/encode_documents.h"

#include <vector>

#include "trireme/core/thread_pool.h"
#include "trireme/data/documents.h"

namespace trireme::data {
namespace {

constexpr std::uint64_t kTask = std::uint64_t{256} << 10;  // bytes of documents that one thread takes at a time
constexpr std::uint64_t kTasksPerThread = 32;

}  // namespace

EncodeProgress encode_documents(std::span<const TextFile> files, const Tokenizer& tokenizer,
                                const EncodeOptions& options,
                                const std::function<void(std::span<const std::int32_t>)>& take) {
  EncodeProgress progress;
  for (const TextFile& file : files) progress.total_bytes += file.bytes;
  const auto end = options.end_documents ? tokenizer.end_of_text() : std::nullopt;
  ThreadPool pool(options.threads);
  DocumentReader reader(files, tokenizer.lines_are_apart());
  const std::uint64_t at_once = kTask * kTasksPerThread * static_cast<std::uint64_t>(pool.threads());
  std::vector<std::vector<std::int32_t>> tokens;
  for (;;) {
    const std::vector<Document> documents = reader.next(at_once);
    if (documents.empty()) break;
    std::vector<std::size_t> first = {0};  // document of each task
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      bytes += documents[i].bytes.size();
      if (bytes < kTask && i + 1 < documents.size()) continue;
      first.push_back(i + 1);
      progress.bytes += bytes;
      bytes = 0;
    }
    const std::size_t tasks = first.size() - 1;
    if (tokens.size() < tasks) tokens.resize(tasks);
    pool.run(static_cast<std::int64_t>(tasks), [&](std::int64_t task) {
      const auto t = static_cast<std::size_t>(task);
      std::vector<std::int32_t>& out = tokens[t];
      out.clear();
      std::string storage;
      for (std::size_t i = first[t]; i < first[t + 1]; ++i) {
        tokenizer.encode(documents[i].text(options.field, storage), Specials::none, out);
        if (end && documents[i].ends) out.push_back(*end);
      }
    });
    for (std::size_t t = 0; t < tasks; ++t) {
      progress.tokens += tokens[t].size();
      take(tokens[t]);
    }
    for (const Document& document : documents) progress.documents += document.ends ? 1 : 0;
    if (options.progress) options.progress(progress);
  }
  progress.bytes = progress.total_bytes;
  return progress;
}

}  // namespace trireme::data
