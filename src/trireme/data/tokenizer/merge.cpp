#include "trireme/data/tokenizer/merge.h"

#include <algorithm>
#include <cstddef>

namespace trireme::data {
namespace {

constexpr std::uint64_t kNoMerge = ~std::uint64_t{0};
// Up to here looking at every pair for each merge is cheaper than keeping them in a heap.
constexpr std::size_t kLongestScan = 48;

// Rank and id in one number, so that the least of several is the one to do.
std::uint64_t packed(const MergeTable& table, std::int32_t a, std::int32_t b) {
  const Merge* merge = table.find(pair_key(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)));
  return merge == nullptr ? kNoMerge : std::uint64_t{merge->rank} << 32 | static_cast<std::uint32_t>(merge->id);
}

void merge_by_scan(const MergeTable& table, MergeScratch& s) {
  auto& symbols = s.symbols;
  auto& pairs = s.pairs;
  std::size_t n = symbols.size();
  pairs.resize(n);
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = packed(table, symbols[i], symbols[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i] < pairs[best]) best = i;
    if (pairs[best] == kNoMerge) break;
    symbols[best] = static_cast<std::int32_t>(pairs[best] & 0xFFFFFFFF);
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best > 0) pairs[best - 1] = packed(table, symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = packed(table, symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

void merge_by_heap(const MergeTable& table, MergeScratch& s) {
  using Candidate = MergeScratch::Candidate;
  auto& symbols = s.symbols;
  auto& links = s.links;
  auto& heap = s.heap;
  const auto n = static_cast<std::int32_t>(symbols.size());
  links.resize(symbols.size());
  for (std::int32_t i = 0; i < n; ++i) links[static_cast<std::size_t>(i)] = {i - 1, i + 1 < n ? i + 1 : -1};
  const auto later = [](const Candidate& a, const Candidate& b) { return a.rank_and_position > b.rank_and_position; };
  const auto consider = [&](std::int32_t left, std::int32_t right) {
    const std::uint64_t merge =
        packed(table, symbols[static_cast<std::size_t>(left)], symbols[static_cast<std::size_t>(right)]);
    if (merge == kNoMerge) return;
    heap.push_back({(merge & 0xFFFFFFFF00000000ULL) | static_cast<std::uint32_t>(left),
                    static_cast<std::int32_t>(merge & 0xFFFFFFFF)});
  };
  heap.clear();
  for (std::int32_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  std::make_heap(heap.begin(), heap.end(), later);
  constexpr std::int32_t gone = -1;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    const auto left = static_cast<std::size_t>(top.rank_and_position & 0xFFFFFFFF);
    if (symbols[left] == gone || links[left].after < 0) continue;
    const auto right = static_cast<std::size_t>(links[left].after);
    // The neighbours may have become others since.
    const std::uint64_t now = packed(table, symbols[left], symbols[right]);
    if (now == kNoMerge || static_cast<std::int32_t>(now & 0xFFFFFFFF) != top.id) continue;
    symbols[left] = top.id;
    symbols[right] = gone;
    links[left].after = links[right].after;
    const auto push = [&](std::int32_t a, std::int32_t b) {
      const std::size_t before = heap.size();
      consider(a, b);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    };
    if (links[left].after >= 0) {
      links[static_cast<std::size_t>(links[left].after)].before = static_cast<std::int32_t>(left);
      push(static_cast<std::int32_t>(left), links[left].after);
    }
    if (links[left].before >= 0) push(links[left].before, static_cast<std::int32_t>(left));
  }
  std::erase(symbols, gone);
}

}  // namespace

void merge_symbols(const MergeTable& table, MergeScratch& scratch) {
  if (scratch.symbols.size() <= kLongestScan)
    merge_by_scan(table, scratch);
  else
    merge_by_heap(table, scratch);
}

}  // namespace trireme::data
