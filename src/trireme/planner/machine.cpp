#include "trireme/planner/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "trireme/core/text.h"
#include "trireme/device/arena.h"
#include "trireme/device/kernel.h"
#include "trireme/ops/matmul/matmul.h"

namespace trireme::planner {
namespace {

// The value after ":" of the first line of /proc/cpuinfo that starts with `key`.
std::string cpu_info(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::string(trim(line.substr(line.find(':') + 1)));
  return {};
}

}  // namespace

double matmul_flops(DType dtype, int threads) {
  constexpr std::int64_t kSide = 1024;
  const TensorType square{dtype, {kSide, kSide}};
  const ir::OpDef op = ops::matmul_def();
  ir::Attributes attributes;
  for (const ir::AttributeSpec& spec : op.attributes) attributes.set(spec.name, spec.fallback);
  const std::vector<TensorType> inputs = {square, square, TensorType::none(), TensorType::none()};
  const std::vector<TensorType> outputs = {square};
  const ir::KernelSpec spec{inputs, outputs, attributes, threads};
  const ir::KernelDef& kernel = op.kernels.at(device::Kind::cpu);
  const auto prepared = kernel.prepare(spec);
  const device::Arena arena(3 * square.bytes() + kernel.workspace(spec));
  std::byte* const base = arena.data();
  const std::vector<const void*> in = {base, base + square.bytes(), nullptr, nullptr};
  const std::vector<void*> out = {base + 2 * square.bytes()};
  ThreadPool pool(threads);
  const device::Launch launch{in, out, base + 3 * square.bytes(), &pool, nullptr};
  using Clock = std::chrono::steady_clock;
  double best = 0;
  const auto start = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - start).count() < 0.1) {
    const auto begin = Clock::now();
    prepared->launch(launch);
    best = std::max(best, 2.0 * kSide * kSide * kSide / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

std::uint64_t total_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string cpu_name() { return cpu_info("model name"); }

std::string cpu_features() {
  const std::string flags = " " + cpu_info("flags") + " ";
  const auto has = [&](const char* flag) { return flags.find(std::string(" ") + flag + " ") != std::string::npos; };
  std::string text = has("avx512f") ? "AVX-512" : has("avx2") ? "AVX2" : "no AVX2";
  if (has("avx512_bf16")) text += ", bf16";
  if (has("amx_bf16")) text += ", AMX";
  return text;
}

std::uint64_t resident_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace trireme::planner
