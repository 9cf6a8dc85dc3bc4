#include "trireme/train/evaluate.h"

#include <algorithm>

namespace trireme::train {
namespace {

// Rows from `first` on add nothing to the loss.
void ignore_rows(data::Batch& batch, std::int64_t first) {
  constexpr std::int32_t kIgnored = -1;
  for (std::vector<std::int32_t>* targets : {&batch.targets, &batch.labels}) {
    const auto per_row = static_cast<std::int64_t>(targets->size()) / batch.rows;
    std::fill(targets->begin() + first * per_row, targets->end(), kIgnored);
  }
}

}  // namespace

Evaluation evaluate(Session& session, const data::Dataset& data, std::int64_t samples,
                    const std::function<void(std::int64_t done, std::int64_t total)>& on_batch) {
  const std::int64_t rows = session.compiled().micro_rows;
  const std::int64_t available = data.samples();
  const std::int64_t count = samples > 0 ? std::min(samples, available) : available;
  const std::int64_t batches = (count + rows - 1) / rows;
  data::Batch batch;
  batch.rows = rows;
  data.resize(batch, rows);
  Evaluation total;
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t first = b * rows;
    const std::int64_t present = std::min(rows, count - first);
    for (std::int64_t r = 0; r < present; ++r) data.read((first + r) * available / count, r, batch);
    ignore_rows(batch, present);
    const Evaluation one = session.evaluate(batch);
    const double share = static_cast<double>(rows) / static_cast<double>(count);
    total.loss += one.loss * share;
    if (one.accuracy) total.accuracy = total.accuracy.value_or(0) + *one.accuracy * share;
    if (on_batch) on_batch(b + 1, batches);
  }
  return total;
}

}  // namespace trireme::train
