#include "trireme/train/sample_text.h"

#include <algorithm>
#include <array>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"

namespace trireme::train {
namespace {

using Tokens = std::span<const std::int32_t>;

// The logits after a sequence that only ever grows at its end.
class Continuation {
 public:
  explicit Continuation(Session& session) : session_(session), compiled_(session.compiled()) {
    const Role& role = session.rank(0).role();
    const program::Program* found = role.find(cached() ? compiled_.prefill.front().program : "predict");
    const auto reads_tokens = [](const Role& any) {
      return any.module.has_graph("predict") && any.module.graph("predict").find_input("tokens").has_value();
    };
    if (found == nullptr || (!cached() && std::none_of(compiled_.roles.begin(), compiled_.roles.end(), reads_tokens)))
      refuse("this model does not predict tokens");
    const program::Program& any = *found;
    vocab_ = any.outputs.front().operand.type.shape.back();
    if (!cached()) window_.resize(static_cast<std::size_t>(any.outputs.front().operand.type.shape[1]));
  }

  std::int64_t vocab() const { return vocab_; }

  std::span<const float> after(Tokens all) { return cached() ? continued(all) : predicted(all); }

 private:
  bool cached() const { return !compiled_.prefill.empty(); }

  // The last tokens that fit, from the start of the window; what follows them is masked by causality.
  std::span<const float> predicted(Tokens all) {
    const std::size_t used = std::min(window_.size(), all.size());
    std::copy(all.end() - static_cast<std::ptrdiff_t>(used), all.end(), window_.begin());
    const auto vocab = static_cast<std::size_t>(vocab_);
    return session_.predict(window_).subspan((used - 1) * vocab, vocab);
  }

  std::span<const float> continued(Tokens all) {
    const auto room = static_cast<std::size_t>(compiled_.cache_rows);
    if (all.size() - start_ > room) {
      // Positions cannot move within the caches: begin again with most of what there was, so that this is rare.
      start_ = all.size() - std::max<std::size_t>(1, room * 3 / 4);
      filled_ = 0;
    }
    const Tokens sequence = all.subspan(start_);
    std::span<const float> logits;
    while (filled_ < sequence.size()) {
      const std::size_t piece = piece_of(sequence.size() - filled_);
      logits = session_.decode(sequence.subspan(filled_, piece), static_cast<std::int64_t>(filled_));
      filled_ += piece;
    }
    return logits;
  }

  // As much as the program that is nearly filled by it takes.
  std::size_t piece_of(std::size_t left) const {
    std::size_t most = 1;
    for (const compiler::Prefill& a : compiled_.prefill) {
      const auto rows = static_cast<std::size_t>(a.rows);
      if (left >= rows || 2 * left > rows) most = rows;
    }
    return std::min(left, most);
  }

  Session& session_;
  const Compiled& compiled_;
  std::int64_t vocab_ = 0;
  std::vector<std::int32_t> window_;
  std::size_t start_ = 0;   // of the sequence in the caches
  std::size_t filled_ = 0;  // its tokens there
};

// The processes that share a model; null: there is one, or some of them have no part of it.
comm::Communicator* world_of_rows(const Session& session) {
  const auto& roles = session.compiled().roles;
  const bool all = std::all_of(roles.begin(), roles.end(), [](const Role& role) { return role.takes_rows(); });
  return all ? session.world() : nullptr;
}

}  // namespace

std::vector<std::int32_t> sample_tokens(Session& session, Tokens prompt, const SampleOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token) {
  if (prompt.empty()) refuse("the prompt is empty");
  if (session.row_ranks() == 0) return {};  // this process has no model to ask
  Continuation continuation(session);
  std::vector<std::int32_t> all(prompt.begin(), prompt.end());
  for (const std::int32_t token : all)
    if (token < 0 || token >= continuation.vocab())
      refuse("prompt token {} is outside the vocabulary of {}", token, continuation.vocab());
  TokenSampler sampler(options.sampling);
  SplitMix random(options.seed);
  comm::Communicator* together = world_of_rows(session);
  for (std::int64_t n = 0; n < options.tokens; ++n) {
    const std::int32_t drawn = sampler.draw(continuation.after(all), random.unit());
    // Logits of different kinds of CPUs differ in their last digits, and only the first knows whether anybody
    // reads.
    const bool first = together == nullptr || together->rank() == 0;
    const bool last = first && ((on_token && !on_token(drawn)) || drawn == options.stop);
    std::array<std::int32_t, 2> said = {drawn, static_cast<std::int32_t>(last)};
    if (together != nullptr) together->broadcast(std::as_writable_bytes(std::span(said)), 0);
    all.push_back(said[0]);
    if (said[1] != 0) break;
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

}  // namespace trireme::train
