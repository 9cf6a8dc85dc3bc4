#include "trireme/train/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/core/error.h"
#include "trireme/core/numbers.h"
#include "trireme/core/text.h"
#include "trireme/core/why_not.h"
#include "trireme/train/same_run.h"

namespace trireme::train {
namespace {

// A row that adds nothing to the loss.
void ignore_row(data::Batch& batch, std::int64_t row) {
  constexpr std::int32_t kIgnored = -1;
  for (std::vector<std::int32_t>* targets : {&batch.targets, &batch.labels}) {
    const auto per_row = static_cast<std::int64_t>(targets->size()) / batch.rows;
    std::fill_n(targets->begin() + row * per_row, per_row, kIgnored);
  }
}

// `bad.row` is a number of the held-out data.
std::string held_out_text(const BadInput& bad) {
  if (bad.row == BadInput::kEveryRow) return "held-out data: " + bad.str();
  return fmt::format("held-out sample {}: input '{}', element {} is {}", bad.row, bad.input, bad.element, bad.what);
}

// Reads on every process, or fails on every one.
template <class Read>
void read_together(const Session& session, Read&& read) {
  const std::string why = why_not(std::forward<Read>(read));
  comm::Communicator* world = session.world();
  if (world == nullptr) {
    if (!why.empty()) throw UnreadableData(why);
    return;
  }
  auto first = static_cast<std::int32_t>(why.empty() ? world->size() : world->rank());
  world->all_reduce(std::span(&first, 1), comm::Reduce::min);
  if (first < world->size())
    throw UnreadableData(fmt::format("rank {}: {}", first, broadcast_from(first, why, *world)));
}

}  // namespace

void require_good_inputs(const Evaluation& evaluation) {
  if (!evaluation.bad_input.empty())
    throw SharedFailure(fmt::format("the held-out loss is not finite: {}", evaluation.bad_input));
}

std::string samples_text(std::int64_t samples, std::int64_t available) {
  const auto text = [](std::int64_t count) { return format_count(static_cast<std::uint64_t>(count)); };
  if (samples < available) return fmt::format("{} of {} samples", text(samples), text(available));
  return available == 1 ? "its one sample" : fmt::format("all {} samples", text(available));
}

Evaluation evaluate(Session& session, const data::Dataset& data, std::int64_t samples,
                    const std::function<void(std::int64_t done, std::int64_t total)>& on_batch, std::int64_t step) {
  const std::int64_t rows = session.compiled().micro_rows;
  const std::int64_t available = data.samples();
  const std::int64_t count = samples > 0 ? std::min(samples, available) : available;
  const std::int64_t batches = (count + rows - 1) / rows;
  data::Batch batch;
  batch.ranges = session.rows(1);
  for (const data::RowRange& range : batch.ranges) batch.rows += range.count;
  data.resize(batch, batch.rows);
  batch.step = step;
  read_together(session, [&] { data.read_common(batch); });
  // Rows behind the last sample have that one.
  const auto number = [&](std::int64_t sample) { return std::min(sample, count - 1) * available / count; };
  // A row without targets is none where these alone make the loss; elsewhere the last sample stands there.
  const bool repeats = !session.compiled().targets_alone;
  Evaluation total{.samples = count, .available = available};
  std::optional<BadInput> bad;
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t first = b * rows;
    read_together(session, [&] {
      for (std::int64_t r = 0; r < batch.rows; ++r) {
        const std::int64_t sample = first + batch.global_row(r);
        if (sample < count || repeats)
          data.read(number(sample), r, batch);
        else
          ignore_row(batch, r);
      }
    });
    const Evaluation one = session.evaluate(batch);
    if (!bad && !std::isfinite(one.loss)) {
      bad = find_bad_input(session.compiled(), "eval", batch);
      if (bad && bad->row != BadInput::kEveryRow) bad->row = number(first + bad->row);
    }
    const double share = static_cast<double>(rows) / static_cast<double>(count);
    total.loss += one.loss * share;
    const std::int64_t more = first + rows - count;
    if (one.accuracy) total.accuracy = total.accuracy.value_or(0) + *one.accuracy * share;
    if (more > 0 && repeats) {
      // What the last sample added too often is as much as it adds to a batch of nothing else.
      read_together(session, [&] {
        for (std::int64_t r = 0; r < batch.rows; ++r) data.read(number(count - 1), r, batch);
      });
      const Evaluation last = session.evaluate(batch);
      const double too_often = static_cast<double>(more) / static_cast<double>(count);
      total.loss -= last.loss * too_often;
      if (last.accuracy) *total.accuracy -= *last.accuracy * too_often;
    }
    if (on_batch) on_batch(b + 1, batches);
  }
  // Processes have their own rows, and all that take some have the same loss. Where some take none they do not know it,
  // and all compare what they found.
  const auto& roles = session.compiled().roles;
  const bool all_know = std::all_of(roles.begin(), roles.end(), [](const Role& role) { return role.takes_rows(); });
  if (session.world() != nullptr && (!all_know || !std::isfinite(total.loss))) bad = first_of(bad, *session.world());
  if (bad) total.bad_input = held_out_text(*bad);
  total.loss = without_nan_sign(total.loss);
  return total;
}

}  // namespace trireme::train
