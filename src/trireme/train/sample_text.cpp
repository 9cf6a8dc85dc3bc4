#include "trireme/train/sample_text.h"

#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"

namespace trireme::train {
namespace {

std::int32_t choose(std::span<const float> logits, double temperature, double unit) {
  const auto best = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (temperature <= 0) return best;
  const double top = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  double total = 0;
  for (const float l : logits) total += std::exp((static_cast<double>(l) - top) / temperature);
  double left = unit * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    left -= std::exp((static_cast<double>(logits[i]) - top) / temperature);
    if (left <= 0) return static_cast<std::int32_t>(i);
  }
  return best;
}

}  // namespace

std::vector<std::int32_t> sample_tokens(Session& session, std::span<const std::int32_t> prompt,
                                        const SampleOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token) {
  if (prompt.empty()) refuse("the prompt is empty");
  const program::Program& predict = session.compiled().predict;
  if (predict.outputs.empty()) refuse("this model does not predict tokens");
  const Shape& shape = predict.outputs.front().operand.type.shape;
  const auto context = static_cast<std::size_t>(shape[1]);
  const auto vocab = static_cast<std::size_t>(shape[2]);
  std::vector<std::int32_t> all(prompt.begin(), prompt.end());
  for (const std::int32_t token : all)
    if (token < 0 || static_cast<std::size_t>(token) >= vocab)
      refuse("prompt token {} is outside the vocabulary of {}", token, vocab);
  std::vector<std::int32_t> made;
  std::vector<std::int32_t> window(context, 0);
  SplitMix random(options.seed);
  for (std::int64_t n = 0; n < options.tokens; ++n) {
    // The last tokens that fit, from the start of the window; what follows them is masked by causality.
    const std::size_t used = std::min(context, all.size());
    std::copy(all.end() - static_cast<std::ptrdiff_t>(used), all.end(), window.begin());
    const std::span<const float> logits = session.predict(window);
    made.push_back(choose(logits.subspan((used - 1) * vocab, vocab), options.temperature, random.unit()));
    all.push_back(made.back());
    if (on_token && !on_token(made.back())) break;
  }
  return made;
}

}  // namespace trireme::train
