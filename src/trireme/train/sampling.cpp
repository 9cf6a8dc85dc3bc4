#include "trireme/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/core/error.h"

namespace trireme::train {

std::int32_t TokenSampler::draw(std::span<const float> logits, double unit) {
  // A sum is finite only if every term is.
  if (!std::isfinite(std::accumulate(logits.begin(), logits.end(), 0.0)))
    fail("the logits are not finite: the model has gone bad");
  if (sampling_.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto logit = [&](std::int32_t token) { return static_cast<double>(logits[static_cast<std::size_t>(token)]); };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  tokens_.resize(logits.size());
  std::iota(tokens_.begin(), tokens_.end(), 0);
  const bool ordered = sampling_.top_p < 1;
  if (sampling_.top_k > 0 && sampling_.top_k < std::ssize(tokens_)) {
    std::nth_element(tokens_.begin(), tokens_.begin() + sampling_.top_k - 1, tokens_.end(), likelier);
    tokens_.resize(static_cast<std::size_t>(sampling_.top_k));
  }
  if (ordered) std::sort(tokens_.begin(), tokens_.end(), likelier);

  const double top = logit(*std::min_element(tokens_.begin(), tokens_.end(), likelier));
  weights_.resize(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    weights_[i] = std::exp((logit(tokens_[i]) - top) / sampling_.temperature);
  double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (ordered) {
    std::size_t kept = 0;
    double sum = 0;
    while (kept < weights_.size() && (kept == 0 || sum < sampling_.top_p * total)) sum += weights_[kept++];
    weights_.resize(kept);
    total = sum;
  }
  double left = unit * total;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return tokens_[i];
  }
  return tokens_[weights_.size() - 1];
}

}  // namespace trireme::train
