#include "trireme/data/tokenizer/train_bpe.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/data/tokenizer/byte_level.h"
#include "trireme/data/tokenizer/count_words.h"
#include "trireme/data/tokenizer/flat_map.h"
#include "trireme/data/tokenizer/tokenizer_json.h"

namespace trireme::data {
namespace {

using Id = std::uint32_t;

// A pair and the words in which it stood when this was made. Its count may be old: it is looked up again when the pair
// comes to the top.
struct Candidate {
  std::uint64_t pair;
  std::int64_t count;
  std::vector<std::uint32_t> words;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Merger {
 public:
  Merger(const std::vector<WordCount>& words, const std::vector<std::string>& specials) {
    for (const std::string& special : specials) token(special);
    // Bytes in the order of the characters that spell them.
    std::vector<std::string> spellings(byte_level_spellings().begin(), byte_level_spellings().end());
    std::vector<char32_t> order(byte_level_characters().begin(), byte_level_characters().end());
    std::sort(order.begin(), order.end());
    for (const char32_t c : order) token(spellings[*byte_of_character(c)]);
    std::array<Id, 256> byte_ids{};
    for (std::size_t b = 0; b < 256; ++b) byte_ids[b] = ids_.at(spellings[b]);

    words_.reserve(words.size());
    counts_.reserve(words.size());
    for (const WordCount& word : words) {
      std::vector<Id>& symbols = words_.emplace_back();
      symbols.reserve(word.word.size());
      for (const char c : word.word) symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
      counts_.push_back(static_cast<std::int64_t>(word.count));
    }
    count_pairs();
  }

  std::size_t vocab() const { return tokens_.size(); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::pair<Id, Id>>& merges() const { return merges_; }

  // Learns one more token; false when no pair is frequent enough.
  bool merge(std::uint64_t min_frequency) {
    while (!queue_.empty()) {
      Candidate top = pop();
      const std::int64_t count = *pair_counts_.find(top.pair);
      if (top.count != count) {
        top.count = count;
        if (count > 0) push(std::move(top));
        continue;
      }
      if (count < 1 || static_cast<std::uint64_t>(count) < min_frequency) return false;
      const auto a = static_cast<Id>(top.pair >> 32);
      const auto b = static_cast<Id>(top.pair & 0xFFFFFFFF);
      const Id made = token(tokens_[a] + tokens_[b]);
      merges_.emplace_back(a, b);
      for (const std::uint32_t word : top.words) merge_in(word, a, b, made);
      for (auto& [pair, words] : fresh_) {
        const std::int64_t times = *pair_counts_.find(pair);
        if (times > 0) push({pair, times, std::move(words)});
      }
      fresh_.clear();
      fresh_index_.clear();
      return true;
    }
    return false;
  }

 private:
  Id token(const std::string& spelling) {
    const auto [found, fresh] = ids_.try_emplace(spelling, static_cast<Id>(tokens_.size()));
    if (fresh) tokens_.push_back(spelling);
    return found->second;
  }

  void push(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end(), Later{});
  }
  Candidate pop() {
    std::pop_heap(queue_.begin(), queue_.end(), Later{});
    Candidate top = std::move(queue_.back());
    queue_.pop_back();
    return top;
  }

  void count_pairs() {
    FlatMap<std::uint32_t> index;
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<Id>& symbols = words_[w];
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const std::uint64_t pair = pair_key(symbols[i], symbols[i + 1]);
        pair_counts_[pair] += counts_[w];
        std::uint32_t& at = index[pair];
        if (at == 0) {
          queue_.push_back({pair, 0, {}});
          at = static_cast<std::uint32_t>(queue_.size());
        }
        std::vector<std::uint32_t>& where = queue_[at - 1].words;
        if (where.empty() || where.back() != w) where.push_back(w);
      }
    }
    for (Candidate& candidate : queue_) candidate.count = *pair_counts_.find(candidate.pair);
    std::make_heap(queue_.begin(), queue_.end(), Later{});
  }

  // Merges the pair everywhere in one word and notes which pairs came and went.
  void merge_in(std::uint32_t word, Id a, Id b, Id made) {
    std::vector<Id>& symbols = words_[word];
    const std::int64_t times = counts_[word];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < symbols.size();) {
      if (i + 1 >= symbols.size() || symbols[i] != a || symbols[i + 1] != b) {
        symbols[kept++] = symbols[i++];
        continue;
      }
      if (kept > 0) {
        pair_counts_[pair_key(symbols[kept - 1], a)] -= times;
        appear(pair_key(symbols[kept - 1], made), times, word);
      }
      i += 2;
      if (i < symbols.size()) {
        pair_counts_[pair_key(b, symbols[i])] -= times;
        appear(pair_key(made, symbols[i]), times, word);
      }
      symbols[kept++] = made;
    }
    symbols.resize(kept);
  }

  void appear(std::uint64_t pair, std::int64_t times, std::uint32_t word) {
    pair_counts_[pair] += times;
    std::uint32_t& at = fresh_index_[pair];
    if (at == 0) {
      fresh_.push_back({pair, {}});
      at = static_cast<std::uint32_t>(fresh_.size());
    }
    std::vector<std::uint32_t>& words = fresh_[at - 1].second;
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  std::unordered_map<std::string, Id> ids_;
  std::vector<std::string> tokens_;
  std::vector<std::pair<Id, Id>> merges_;
  std::vector<std::vector<Id>> words_;
  std::vector<std::int64_t> counts_;  // of each word
  FlatMap<std::int64_t> pair_counts_;
  std::vector<Candidate> queue_;                                             // a heap
  std::vector<std::pair<std::uint64_t, std::vector<std::uint32_t>>> fresh_;  // pairs that the last merge made
  std::unordered_map<std::uint64_t, std::uint32_t> fresh_index_;
};

}  // namespace

TrainedBpe train_bpe(std::span<const TextFile> files, const TrainBpeOptions& options) {
  std::vector<std::string> specials = options.specials;
  std::sort(specials.begin(), specials.end());
  if (std::adjacent_find(specials.begin(), specials.end()) != specials.end()) refuse("a special token is given twice");
  if (!specials.empty() && specials[0].empty()) refuse("a special token must not be empty");
  const auto least = static_cast<std::int64_t>(256 + specials.size());
  if (options.vocab < least)
    refuse("a vocabulary of {} is too small: 256 bytes and {} special tokens need {}", options.vocab, specials.size(),
           least);
  const std::vector<WordCount> words = count_words(files, options);
  Merger merger(words, options.specials);
  const auto wanted = static_cast<std::size_t>(options.vocab);
  constexpr std::size_t often = 256;
  while (merger.vocab() < wanted && merger.merge(options.min_frequency))
    if (options.progress && merger.vocab() % often == 0) options.progress("merging", merger.vocab(), wanted);
  if (options.progress) options.progress("merging", wanted, wanted);

  TrainedBpe result;
  result.json = byte_level_json(merger.tokens(), merger.merges(), options);
  result.vocab = static_cast<std::int64_t>(merger.vocab());
  result.merges = static_cast<std::int64_t>(merger.merges().size());
  result.words = words.size();
  return result;
}

}  // namespace trireme::data
