#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme::ir {

// How an op may be sharded. Dimensions that carry the same factor go together; what sharding a factor means follows
// from where the factor appears:
//   - in inputs and outputs: each rank computes its part;
//   - in inputs only: the outputs become partial sums (or the `reduce` kind given);
//   - in outputs only: each rank makes its part of the output from whole inputs.
// A factor marked whole may not be sharded; a partitioned one may with the help of the op's partition function; one
// with a halo is a height or a width, which spatial axes alone shard: the partition function exchanges edges first.
//
// Written like an einsum, with one name per dimension; operands are separated by commas; "-" stands for no dimension:
// an absent operand or a scalar:
//
//   parse_factors("b s k, n k, n -> b s n")                  // linear with bias
//   parse_factors("b s d!, d!, d! -> b s d!, b s, b s")      // layer norm: the normalised dimension stays whole
//   parse_factors("b= s=, v* d -> b= s= d")                  // embedding: rows of the table that others have are asked
//                                                            // for; tokens are never padded
struct Factor {
  enum class Kind { free, whole, partitioned, halo };
  std::string name = {};
  Kind kind = Kind::free;
  // Its elements are the rows of a rank's share of the batch, as the op knows from elsewhere: the data axis shards
  // them, wherever there is one, and no other.
  bool share = false;
  // Never padded, whatever Traits::pads says of the op: zeros beyond the end would count, or would not stay zeros. So
  // it is with rows to which a bias is added, tokens, and what a broadcast repeats.
  bool exact = false;
};

struct Factors {
  std::vector<Factor> factors;
  std::vector<std::vector<int>> inputs;  // per operand and dimension: index into `factors`
  std::vector<std::vector<int>> outputs;
  bool max_reduced = false;  // factors in inputs only combine by maximum instead of sum

  // "b s k, n k -> b s n"
  std::string str() const;
};

// "name" is free, "name!" whole, "name*" partitioned, "name~" halo, "name=" free and exact. Throws on malformed text.
Factors parse_factors(std::string_view text);

}  // namespace trireme::ir
