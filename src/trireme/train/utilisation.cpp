#include "trireme/train/utilisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

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

// Of one rank. What the host's cores update is none of its device's.
Operations operations_of(const program::Program& program) {
  Operations sum;
  for (const program::Instruction& i : program.instructions) {
    if (i.kind != program::Instruction::Kind::launch || i.on_host) continue;
    ir::Types inputs;
    ir::Types outputs;
    for (const program::Operand& o : i.inputs) inputs.push_back(o.type);
    for (const program::Operand& o : i.outputs) outputs.push_back(o.type);
    const double flops = i.op->cost(inputs, outputs, i.attributes).flops;
    sum.all += flops;
    if (!i.recomputed) sum.model += flops;
  }
  return sum;
}

}  // namespace

Operations operations_of_step(const Compiled& compiled) {
  std::vector<Operations> by_role;
  for (const Role& role : compiled.roles)
    by_role.push_back(role.takes_rows() ? operations_of(role.program("step")) : Operations{});
  Operations sum;
  for (int rank = 0; rank < compiled.ranks(); ++rank) {
    const Operations& own = by_role[compiled.seat(rank).role];
    sum.all += own.all;
    sum.model += own.model;
  }
  return sum;
}

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
