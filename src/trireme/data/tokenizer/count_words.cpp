#include "trireme/data/tokenizer/count_words.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "trireme/core/error.h"
#include "trireme/core/thread_pool.h"
#include "trireme/data/documents.h"
#include "trireme/data/tokenizer/known_patterns.h"
#include "trireme/data/tokenizer/regex.h"
#include "trireme/data/tokenizer/utf8.h"

namespace trireme::data {
namespace {

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Counts = std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>>;

const KnownPattern& known(const std::string& name) {
  for (const KnownPattern& pattern : kKnownPatterns)
    if (pattern.name == name) return pattern;
  refuse("there is no pattern \"{}\"; there are gpt2, llama3 and qwen", name);
}

void count(std::string_view text, const Regex& regex, RegexScratch& scratch, Counts& counts) {
  std::string repaired;
  if (valid_utf8(text) != text.size()) {
    repaired = to_utf8(text);
    text = repaired;
  }
  const auto add = [&](std::size_t begin, std::size_t end) {
    const std::string_view word = text.substr(begin, end - begin);
    const auto found = counts.find(word);
    if (found != counts.end())
      ++found->second;
    else
      counts.emplace(word, 1);
  };
  std::size_t done = 0;
  regex.each(text, scratch, [&](std::size_t begin, std::size_t end) {
    if (done < begin) add(done, begin);
    if (begin < end) add(begin, end);
    done = end;
  });
  if (done < text.size()) add(done, text.size());
}

}  // namespace

std::vector<WordCount> count_words(std::span<const TextFile> files, const TrainBpeOptions& options) {
  const Regex regex(std::string(known(options.pattern).expression), "pattern");
  std::uint64_t total = 0;
  std::uint64_t done = 0;
  for (const TextFile& file : files) total += file.bytes;
  ThreadPool pool(options.threads);
  const auto threads = static_cast<std::size_t>(pool.threads());
  std::vector<Counts> counts(threads);
  std::vector<RegexScratch> scratch(threads);
  DocumentReader reader(files, Cuts::words, options.field);  // the known patterns all keep lines and words apart
  for (;;) {
    const std::vector<Document> documents = reader.next(std::uint64_t{32} << 20);
    if (documents.empty()) break;
    constexpr std::int64_t block = 16;
    const auto blocks = (static_cast<std::int64_t>(documents.size()) + block - 1) / block;
    pool.run_with_worker(blocks, [&](std::int64_t b, int worker) {
      const auto w = static_cast<std::size_t>(worker);
      std::string storage;
      const auto last = std::min(documents.size(), static_cast<std::size_t>((b + 1) * block));
      for (auto i = static_cast<std::size_t>(b * block); i < last; ++i)
        count(documents[i].text(options.field, storage), regex, scratch[w], counts[w]);
    });
    for (const Document& document : documents) done += document.bytes.size();
    if (options.progress) options.progress("counting words", done, total);
  }
  for (std::size_t t = 1; t < threads; ++t) {
    for (const auto& [word, times] : counts[t]) counts[0][word] += times;
    counts[t] = {};
  }
  std::vector<WordCount> words;
  words.reserve(counts[0].size());
  while (!counts[0].empty()) {
    auto node = counts[0].extract(counts[0].begin());
    words.push_back({std::move(node.key()), node.mapped()});
  }
  std::sort(words.begin(), words.end(), [](const WordCount& a, const WordCount& b) { return a.word < b.word; });
  return words;
}

}  // namespace trireme::data
