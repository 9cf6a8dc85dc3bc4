#pragma once
#include <cstdint>

#include "trireme/train/config.h"

namespace trireme::train {

// The learning rate of update `step` (from 0): linear warm-up from lr/warmup, then the schedule down to min_lr at
// decay_steps (or steps), and min_lr beyond.
double learning_rate(const TrainConfig& config, std::int64_t step);
// The same in a run whose rounds of pruning repeat the schedule.
double learning_rate(const Config& config, std::int64_t step);

}  // namespace trireme::train
