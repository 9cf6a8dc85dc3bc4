#include <algorithm>
#include <cmath>
#include <deque>

#include "trireme/core/error.h"
#include "trireme/core/flag_scope.h"
#include "trireme/train/culprit.h"
#include "trireme/train/loader_depth.h"
#include "trireme/train/schedule.h"
#include "trireme/train/trainer.h"

namespace trireme::train {

using Clock = std::chrono::steady_clock;

// Up to the next step at which something is due, and not for long: requests wait for it.
std::int64_t Trainer::asynchronous_steps() const {
  constexpr double kSeconds = 0.25;
  const auto many = static_cast<std::int64_t>(kSeconds / std::max(step_seconds_, 1e-6));
  std::int64_t count = step_seconds_ == 0 ? 1 : std::max<std::int64_t>(1, many);
  // A pipeline that comes together is drained; its ranks hear of requests while it is full.
  if (compiled_.asynchronous_pipeline()) count = config_.train.steps;
  count = std::min(count, config_.train.steps - step_);
  for (const std::int64_t every : {config_.train.eval_every, config_.output.checkpoint_every.steps})
    if (every > 0) count = std::min(count, every - step_ % every);
  return count;
}

// No step is run again where ranks go at their own pace, but the rows of any step can be read again.
std::string Trainer::input_to_blame(std::int64_t step) const {
  data::Batch batch;
  sampler().fill(step, session_->rows(compiled_.micro_batches), batch);
  const auto bad = find_bad_input(compiled_, "micro", batch);
  return bad ? text_of(*bad, step) + "; " : "";
}

Metrics Trainer::take_asynchronous_steps(Outcome& outcome) {
  const std::int64_t first = step_;
  const std::int64_t count = broadcast(asynchronous_steps());
  while (loaders_.size() < session_->row_ranks()) {
    const Rank& worker = *session_->ranks()[loaders_.size()];
    std::vector<data::RowRange> rows;
    rows.reserve(static_cast<std::size_t>(compiled_.micro_batches));
    for (int m = 0; m < compiled_.micro_batches; ++m) rows.push_back(worker.rows(m));
    loaders_.emplace_back(new data::Loader(batches(step_, std::move(rows))));
  }
  std::vector<data::Loader*> loaders;
  for (const auto& loader : loaders_) loaders.push_back(loader.get());
  require_data(loaders, kStepsToDrain, outcome);
  const auto began = Clock::now();
  // What the first rank of this process had done when a step of its own ended.
  struct Mark {
    Clock::time_point time;
    std::uint64_t sent = 0;
    double waited = 0;
  };
  const auto mark = [&] {
    return Mark{Clock::now(), session_->ranks().front()->sent_bytes(),
                loaders_.empty() ? 0 : loaders_.front()->waited()};
  };
  Mark before = mark();
  std::deque<Mark> ended;  // steps of a pipeline, whose results come later
  Metrics last;
  std::string went_bad;  // the first step of a pipeline that did: it is drained then
  const auto log_last = [&] {
    if (last.step <= first || (last.step % config_.output.log_every != 0 && !last.skipped)) return;
    log_metrics(last);
    if (options_.on_step) options_.on_step(last);
  };
  // The first worker of this process speaks: its own loss, at its own pace.
  const auto done = [&](std::size_t worker, std::int64_t step, const StepResult& result) {
    if (!result.finite && compiled_.asynchronous_pipeline()) {
      if (worker == 0 && went_bad.empty())
        went_bad = fmt::format(
            "step {}: the loss is {} or a stage's gradient norm is not finite; {}its update was withheld, and other "
            "stages may have gone on",
            step + 1, in_words(result.loss), input_to_blame(step));
      return;
    }
    // As in batch_to_blame: a skipped step whose loss is finite overflowed.
    const bool overflowed = result.skipped() && std::isfinite(result.loss);
    const std::string blamed = result.finite || overflowed ? "" : input_to_blame(step);
    if (!result.finite && (!result.skipped() || !blamed.empty()))
      fail("step {}: the loss of worker {} is {} and its gradient norm {}; {}its update was withheld", step + 1,
           session_->first_rank() + worker, in_words(result.loss), in_words(result.grad_norm), blamed);
    if (worker != 0) return;
    // The last one is logged with what follows it.
    log_last();
    if (ended.empty()) ended.push_back(mark());
    const Mark now = ended.front();
    ended.pop_front();
    step_seconds_ = std::chrono::duration<double>(now.time - before.time).count();
    last = measured(result, step, step_seconds_, outcome);
    last.sent_bytes = now.sent - before.sent;
    last.data_wait_ms = (now.waited - before.waited) * 1e3;
    outcome.data_seconds += now.waited - before.waited;
    before = now;
    if (options_.request) requested_ = std::max(requested_, options_.request(last));
  };
  const auto interrupt = [&] {
    ended.push_back(mark());
    if (!went_bad.empty()) return true;
    if (options_.request) requested_ = std::max(requested_, options_.request(last));
    const bool lost =
        std::any_of(loaders.begin(), loaders.end(), [](data::Loader* l) { return !l->wait(kStepsToDrain); });
    return lost || requested_ != Request::none || (leads() && (out_of_time() || checkpoint_is_late()));
  };
  const FlagScope own_pace(at_own_pace_);
  const std::int64_t taken = session_->run(
      {.first = first,
       .count = count,
       .seed = config_.train.seed,
       .lr = [&](std::int64_t step) { return learning_rate(config_, step); },
       .batch = [&](std::size_t worker, std::int64_t) -> const data::Batch& { return loaders_[worker]->next(); },
       .done = done,
       .interrupt = interrupt});
  step_ = first + taken;
  outcome.seconds += std::chrono::duration<double>(Clock::now() - began).count();
  // A process whose ranks take no rows has no loss to report.
  if (session_->row_ranks() == 0) outcome.losses.resize(outcome.losses.size() + static_cast<std::size_t>(taken));
  if (!went_bad.empty()) {
    log_last();
    // The last one from before it may be the last that is worth going on from.
    if (writer_) writer_->keep_all();
    throw BadStep(went_bad + (writer_ ? save_at_failure(outcome, "the state after the last update of each") : ""));
  }
  last.step = step_;
  return last;
}

}  // namespace trireme::train
