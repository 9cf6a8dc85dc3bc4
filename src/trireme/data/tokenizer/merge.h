#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/tokenizer/flat_map.h"

namespace trireme::data {

// What becomes of two neighbouring tokens: how early that was learnt, and the id of the two together.
struct Merge {
  std::uint32_t rank = 0;
  std::int32_t id = -1;
};
using MergeTable = FlatMap<Merge>;

struct MergeScratch {
  std::vector<std::int32_t> symbols;
  std::vector<std::uint64_t> pairs;
  struct Link {
    std::int32_t before;
    std::int32_t after;
  };
  std::vector<Link> links;
  struct Candidate {
    std::uint64_t rank_and_position;
    std::int32_t id;
  };
  std::vector<Candidate> heap;
};

// Merges `scratch.symbols` until no pair of neighbours is in the table: lowest rank first, leftmost first.
void merge_symbols(const MergeTable& table, MergeScratch& scratch);

}  // namespace trireme::data
