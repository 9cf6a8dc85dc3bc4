#include "trireme/train/utilisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trireme/device/cuda/cuda.h"
#include "trireme/planner/machine.h"

namespace trireme::train {
namespace {

DType multiplied(Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::fp8: return DType::bf16;
    case Precision::fp16: return DType::f16;
    case Precision::f32:
    case Precision::tf32: break;
  }
  return DType::f32;
}

}  // namespace

void Utilisation::measured(double speed) {
  product_ = std::max(product_, speed);
  if (speed <= peak_) return;
  peak_ = speed;
  outrun_ = false;
}

double Utilisation::of(double speed) {
  if (peak_ <= 0) return 0;
  if (speed > peak_) {
    peak_ = speed;
    outrun_ = true;
  }
  return speed / peak_;
}

std::string Utilisation::outrun_text(std::int64_t step, double speed) const {
  return fmt::format(
      "mfu: step {} ran at {:.1f} GFLOP/s, above the {:.1f} measured before; it is now of the fastest step", step,
      speed / 1e9, product_ / 1e9);
}

double product_speed(const Config& config, const Compiled& compiled, int threads, comm::Communicator* world,
                     int local_ranks) {
  const bool cpu = compiled.device() == device::Kind::cpu;
  const int cores = compute_threads({});
  const int ranks = compiled.mesh.ranks();
  const int gpus = std::max(1, static_cast<int>(device::cuda::gpus().size()));
  const auto speed = [&](int of) {
    return planner::matmul_flops(multiplied(config.train.precision.kind()), of, compiled.device(),
                                 config.train.precision == Precision::tf32);
  };
  if (world == nullptr) return cpu ? speed(std::min(cores, threads * ranks)) : speed(threads) * std::min(gpus, ranks);
  // Ranks that share cores or GPUs have a share of their speed.
  const int here = std::max(1, local_ranks);
  double sum = speed(threads) *
               std::min(1.0, cpu ? static_cast<double>(cores) / (threads * here) : static_cast<double>(gpus) / here);
  world->all_reduce(std::span(&sum, 1), comm::Reduce::sum);
  return sum;
}

}  // namespace trireme::train
