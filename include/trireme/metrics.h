#pragma once
#include <cstdint>
#include <optional>

namespace trireme {

// One step of a run, as in metrics.jsonl.
struct Metrics {
  std::int64_t step = 0;  // updates done
  double loss = 0;
  // Of the step's update; of the last one where a step has several. NaN (null in the file) where it is not known: in an
  // asynchronous pipeline, whose stages are at different updates until it is drained.
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;  // so far; an image counts as one
  double tokens_per_s = 0;
  double step_ms = 0;
  std::uint64_t peak_bytes = 0;  // largest arena over ranks: planned, and allocated so
  std::uint64_t sent_bytes = 0;  // this step, largest over ranks
  double wall_s = 0;
  double mfu = 0;  // share of the speed that a large matmul reaches on the same cores
  double exposed_comm_ms = 0;
  double data_wait_ms = 0;
  std::optional<double> eval_loss;      // where evaluated
  std::optional<double> eval_accuracy;  // likewise, of images: the share whose label was the most likely
  std::int64_t eval_samples = 0;        // likewise: the held-out samples that both are means over,
  std::int64_t held_out_samples = 0;    // and how many there are
  // fp16: what the gradients of this step were scaled by, and whether they overflowed and the update was withheld.
  std::optional<double> loss_scale;
  bool skipped = false;
};

}  // namespace trireme
