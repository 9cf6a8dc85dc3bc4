#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::train {

// How the next token is drawn. The cuts are taken in this order: the `top_k` likeliest, then the fewest of those whose
// probabilities (at the temperature) add up to `top_p`.
struct Sampling {
  double temperature = 0.8;  // 0: the likeliest token each time
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1;
};

// Draws tokens from logits; keeps its scratch between draws.
class TokenSampler {
 public:
  explicit TokenSampler(const Sampling& sampling) : sampling_(sampling) {}
  // `unit` is uniform in [0, 1). Of equally likely tokens the first comes first.
  std::int32_t draw(std::span<const float> logits, double unit);

 private:
  Sampling sampling_;
  std::vector<std::int32_t> tokens_;
  std::vector<double> weights_;
};

}  // namespace trireme::train
