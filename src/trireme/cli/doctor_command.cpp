#include <thread>

#include "trireme/cli/commands.h"
#include "trireme/comm/mpi/session.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cpu/onednn.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/cuda/nccl.h"
#include "trireme/ops/instruction_set.h"
#include "trireme/planner/machine.h"
#include "trireme/train/compile.h"

namespace trireme::cli {
namespace {

int examine() {
  const int threads = train::compute_threads({});
  fmt::print("cpu         {} · {} of {} hardware threads usable · {}\n", planner::cpu_name(), threads,
             std::thread::hardware_concurrency(), planner::cpu_features());
  fmt::print("kernels     compiled for {}\n", ops::instruction_set());
  fmt::print("memory      {}\n", format_bytes(planner::total_memory()));
  fmt::print("speed       matmul {:.0f} GFLOP/s in f32, {:.0f} in bf16 on {} thread{}\n",
             planner::matmul_flops(DType::f32, threads) / 1e9, planner::matmul_flops(DType::bf16, threads) / 1e9,
             threads, threads == 1 ? "" : "s");
  const std::vector<device::cuda::Gpu> gpus = device::cuda::gpus();
  if (!device::cuda::built()) fmt::print("gpu         none in this build (preset cuda builds with CUDA)\n");
  if (device::cuda::built() && gpus.empty()) fmt::print("gpu         no CUDA device found\n");
  for (const device::cuda::Gpu& gpu : gpus)
    fmt::print("gpu         {} · {} · {} multiprocessors · compute capability {} · {}\n", gpu.name,
               format_bytes(gpu.memory), gpu.multiprocessors, gpu.capability, device::cuda::versions());
  if (!gpus.empty())
    fmt::print("gpu speed   matmul {:.0f} TFLOP/s in f32, {:.0f} in bf16\n",
               planner::matmul_flops(DType::f32, threads, device::Kind::cuda) / 1e12,
               planner::matmul_flops(DType::bf16, threads, device::Kind::cuda) / 1e12);
  const std::string mpi =
      comm::mpi::available() ? "(" + comm::mpi::version() + ")" : "missing (install libopenmpi-dev and build again)";
  const char* const nccl = device::cuda::Nccl::available() ? " · nccl" : " · nccl missing (install libnccl2)";
  fmt::print("transports  threads · mpi {}{}\n", mpi, device::cuda::built() ? nccl : "");
  fmt::print("libraries   oneDNN {} · fmt {}.{}.{} · compiler {}\n", device::cpu::onednn_version(), FMT_VERSION / 10000,
             FMT_VERSION / 100 % 100, FMT_VERSION % 100, __VERSION__);
  fmt::print("missing     nothing that training needs\n");
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine offers, what is missing and how to get it");
  command->footer("\nExample:\n  trireme doctor\n");
  command->callback([&context] { context.run = examine; });
}

}  // namespace trireme::cli
