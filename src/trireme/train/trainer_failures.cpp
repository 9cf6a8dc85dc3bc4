#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/why_not.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/trainer.h"

// How a run ends that cannot go on: its state is saved first, where every process is there to do so.
namespace trireme::train {

// "; WHAT is saved as step …", or why it is not.
std::string Trainer::save_at_failure(Outcome& outcome, std::string_view what) {
  try {
    checkpoint(outcome, true);
  } catch (const Error& e) {
    return fmt::format("; and {}", e.message());
  }
  return fmt::format("; {} is saved as step {} in {}", what, step_, folder_.string());
}

// A file was cut, or its disk cannot be read any more: the state is the last step's, and only data are missing.
void Trainer::require_data(std::span<data::Loader* const> loaders, std::size_t steps, Outcome& outcome) {
  const auto lost = std::find_if(loaders.begin(), loaders.end(), [&](data::Loader* l) { return !l->wait(steps); });
  if (most_urgent(lost == loaders.end() ? Request::none : Request::stop) == Request::none) return;
  std::string why = "another process cannot read its data";
  if (lost != loaders.end())
    why = why_not([&] {
      for (std::size_t step = 0; step < steps; ++step) (*lost)->next();
    });
  if (!writer_ || outcome.losses.empty()) fail("{}", why);
  fail("{}{}", why, save_at_failure(outcome, "the state before it"));
}

// Held-out data that cannot be read end the run, but not before its state is saved. Of other failures the processes do
// not know together.
std::optional<Evaluation> Trainer::evaluate_or_save(Outcome& outcome) {
  try {
    return evaluate_in_run();
  } catch (const Error& e) {
    const bool together = options_.world == nullptr || dynamic_cast<const UnreadableData*>(&e) != nullptr;
    if (!writer_ || outcome.losses.empty() || !together) throw;
    throw UnreadableData(e.message() + save_at_failure(outcome, "the state"));
  }
}

std::string Trainer::text_of(const BadInput& bad, std::int64_t step) const {
  return bad.str(bad.row == BadInput::kEveryRow ? std::nullopt : std::optional(sampler().sample(step, bad.row)));
}

// Gradients that overflow leave the loss as it is: with a finite loss an infinite input, such as a mask, is no culprit.
bool Trainer::batch_to_blame(const data::Batch& batch, const StepResult& result) {
  if (broadcast(static_cast<std::int64_t>(std::isfinite(result.loss))) != 0) return false;
  return session_->bad_input(batch).has_value();
}

// The update was withheld, so the state is the last good one: find the culprit, save, stop. One that was skipped has
// halved the scale and was counted: that state is the one after its step.
void Trainer::stop_at_bad_step(const data::Batch& batch, const StepResult& result, double lr) {
  const std::int64_t step = step_;
  const auto bad = session_->explain(batch, step, lr, config_.train.seed);
  if (result.skipped()) ++step_;
  Outcome ignored;
  const std::string saved =
      writer_ ? save_at_failure(ignored, result.skipped() ? "the state after it" : "the state before it") : "";
  const std::string culprit = !bad ? "no single tensor is to blame: the sum of squared gradients overflows"
                              : bad->input
                                  ? text_of(*bad->input, step)
                                  : fmt::format("the first tensor to go bad is '{}' ({} in {}, micro-batch {}{})",
                                                bad->tensor.tensor, bad->tensor.what, bad->tensor.op, bad->tensor.micro,
                                                compiled_.ranks() > 1 ? fmt::format(", rank {}", bad->rank) : "");
  throw BadStep(fmt::format("step {}: the loss{} is {} and the gradient norm {}; {}; the update was withheld{}",
                            step + 1, result.loss_scale && !result.skipped() ? ", with its scale down at 1," : "",
                            in_words(result.loss), in_words(result.grad_norm), culprit, saved));
}

}  // namespace trireme::train
