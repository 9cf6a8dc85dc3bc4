#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trireme::ir {

// How a value is spread over a mesh: for each dimension the axes that cut it (outermost first), and the axes over which
// what each rank holds is still only a part of the value. Empty: every rank holds the whole value.
struct Sharding {
  enum class Reduce { sum, max, softmax };  // softmax: the pair of maximum and sum of exponentials
  struct Partial {
    std::string axis;
    Reduce reduce = Reduce::sum;
    friend bool operator==(const Partial&, const Partial&) = default;
  };
  std::vector<std::vector<std::string>> dims;
  std::vector<Partial> partial;

  bool replicated() const;
  // "[dp,_,tp] partial(sum:tp)"; "" when replicated
  std::string str() const;
  // However many dimensions it is written for, "whole everywhere" is one sharding.
  friend bool operator==(const Sharding& a, const Sharding& b);
};

// Reads what `str` writes. Throws on malformed text.
Sharding parse_sharding(std::string_view text);

}  // namespace trireme::ir
