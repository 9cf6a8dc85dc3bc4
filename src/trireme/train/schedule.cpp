#include "trireme/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/train/prune.h"

namespace trireme::train {

double learning_rate(const TrainConfig& c, std::int64_t step) {
  if (step < c.warmup) return c.lr * static_cast<double>(step + 1) / static_cast<double>(c.warmup);
  const std::int64_t end = c.decay_steps > 0 ? c.decay_steps : c.steps;
  const double length = static_cast<double>(std::max<std::int64_t>(1, end - c.warmup));
  const double progress = std::clamp(static_cast<double>(step - c.warmup) / length, 0.0, 1.0);
  switch (c.schedule.kind()) {
    case Schedule::constant: break;
    case Schedule::cosine: return c.min_lr + (c.lr - c.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Schedule::linear: return c.min_lr + (c.lr - c.min_lr) * (1 - progress);
    case Schedule::wsd: {  // warm up, stay, decay over the last fraction
      const double decay = c.schedule.argument();
      const double down = std::clamp((progress - (1 - decay)) / decay, 0.0, 1.0);
      return c.min_lr + (c.lr - c.min_lr) * (1 - down);
    }
  }
  return c.lr;
}

double learning_rate(const Config& config, std::int64_t step) {
  return learning_rate(config.train, scheduled_step(config, step));
}

}  // namespace trireme::train
