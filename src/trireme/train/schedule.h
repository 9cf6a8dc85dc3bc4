#pragma once
#include <cstdint>

#include "trireme/train/config.h"

namespace trireme::train {

// The learning rate of update `step` (from 0): linear warm-up from lr/warmup, then the schedule down to min_lr at
// decay_steps (or steps), and min_lr beyond.
double learning_rate(const TrainConfig& config, std::int64_t step);
// The same in a run whose rounds of pruning repeat the schedule.
double learning_rate(const Config& config, std::int64_t step);

// Of which a default is a part: a run that is to be extended says so by decay_steps.
inline std::int64_t planned_steps(const Config& config) {
  return config.train.decay_steps > 0 ? config.train.decay_steps : config.train.steps;
}

}  // namespace trireme::train
