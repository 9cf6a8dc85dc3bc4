#include "trireme/data/tokenizer/split.h"

#include <algorithm>

namespace trireme::data {
namespace {

// Joins a span to the one before when `joins(span, before_matched)`, in place.
template <class F>
void join(std::vector<Span>& spans, F&& joins) {
  std::size_t kept = 0;
  bool before_matched = false;
  for (const Span span : spans) {
    if (kept > 0 && joins(span.match, before_matched)) {
      spans[kept - 1].begin = std::min(spans[kept - 1].begin, span.begin);
      spans[kept - 1].end = std::max(spans[kept - 1].end, span.end);
    } else {
      spans[kept++] = span;
    }
    before_matched = span.match;
  }
  spans.resize(kept);
}

}  // namespace

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.text();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.refuse("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, is \"" + name + "\"");
}

void arrange(SplitBehavior behavior, std::vector<Span>& spans) {
  const auto fresh_match = [](bool match, bool before) { return match && !before; };
  switch (behavior) {
    case SplitBehavior::isolated: return;
    case SplitBehavior::removed: std::erase_if(spans, [](const Span& span) { return span.match; }); return;
    case SplitBehavior::contiguous: join(spans, [](bool match, bool before) { return match == before; }); return;
    case SplitBehavior::merged_with_previous: join(spans, fresh_match); return;
    case SplitBehavior::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      join(spans, fresh_match);
      std::reverse(spans.begin(), spans.end());
      return;
  }
}

}  // namespace trireme::data
