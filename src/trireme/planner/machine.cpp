#include "trireme/planner/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "trireme/core/cgroup.h"
#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/device/arena.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/stream.h"
#include "trireme/ops/all.h"

namespace trireme::planner {
namespace {

// The value after ":" of the first line of /proc/cpuinfo that starts with `key`.
std::string cpu_info(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::string(trim(line.substr(line.find(':') + 1)));
  return {};
}

// A GPU multiplies zeros faster than other numbers.
void fill_randomly(const device::Arena& arena, DType dtype, std::size_t bytes) {
  std::vector<std::byte> block(std::size_t{1} << 20);
  SplitMix random(1);
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < block.size(); i += size) {
    const auto value = static_cast<float>(2 * random.unit() - 1);
    if (dtype == DType::f32) {
      std::memcpy(block.data() + i, &value, sizeof value);
    } else {
      const std::uint16_t bits = dtype == DType::bf16 ? BFloat16(value).bits : Float16(value).bits;
      std::memcpy(block.data() + i, &bits, sizeof bits);
    }
  }
  for (std::size_t at = 0; at < bytes; at += block.size())
    arena.write(at, std::span(block).first(std::min(block.size(), bytes - at)));
}

}  // namespace

double op_seconds(const std::string& name, const std::vector<TensorType>& inputs, const ir::Attributes& given,
                  int threads, device::Kind device) {
  const bool cpu = device == device::Kind::cpu;
  const ir::OpDef op = ops::builtin().at(name);
  ir::Attributes attributes;
  for (const ir::AttributeSpec& spec : op.attributes) attributes.set(spec.name, spec.fallback);
  for (const auto& [key, value] : given) attributes.set(key, value);
  const std::vector<TensorType> outputs = op.infer(inputs, attributes);
  const ir::KernelSpec spec{inputs, outputs, attributes, threads};
  const ir::KernelDef& kernel = op.kernels.at(device);
  const auto prepared = kernel.prepare(spec);
  std::size_t end = 0;
  const auto next = [&](std::size_t bytes) { return std::exchange(end, end + (bytes + 255) / 256 * 256); };
  std::vector<std::size_t> in_at, out_at;
  for (const TensorType& t : inputs) in_at.push_back(next(t.bytes()));
  const std::size_t filled = end;
  for (const TensorType& t : outputs) out_at.push_back(next(t.bytes()));
  const std::size_t scratch_at = next(kernel.workspace ? kernel.workspace(spec) : 0);
  const device::Arena arena(end, device);
  if (!cpu) fill_randomly(arena, inputs[0].dtype, filled);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) in.push_back(inputs[i].present ? arena.data() + in_at[i] : nullptr);
  for (const std::size_t at : out_at) out.push_back(arena.data() + at);
  ThreadPool pool(threads);
  const auto streams = device::make_streams(device);
  const device::Launch launch{in, out, arena.data() + scratch_at, &pool, streams->native()};
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  const int together = cpu ? 1 : 10;  // launches between two looks at the clock
  while (std::chrono::duration<double>(Clock::now() - start).count() < 0.1) {
    const auto begin = Clock::now();
    for (int i = 0; i < together; ++i) prepared->launch(launch);
    streams->synchronize();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / together);
  }
  return best;
}

double product_seconds(const Product& p, int threads, device::Kind device) {
  const TensorType a{p.dtype, p.trans_a ? Shape{p.k, p.m} : Shape{p.m, p.k}};
  const TensorType b{p.dtype, p.trans_b ? Shape{p.n, p.k} : Shape{p.k, p.n}};
  return op_seconds("matmul", {a, b, TensorType::none(), TensorType::none()},
                    {{"trans_a", p.trans_a},
                     {"trans_b", p.trans_b},
                     {"a_split", std::int64_t{1}},
                     {"b_split", std::int64_t{1}},
                     {"tf32", p.tf32}},
                    threads, device);
}

double matmul_flops(DType dtype, int threads, device::Kind device, bool tf32) {
  const std::int64_t side = device == device::Kind::cpu ? 1024 : 8192;
  const Product square{.m = side, .n = side, .k = side, .dtype = dtype, .tf32 = tf32};
  return square.flops() / product_seconds(square, threads, device);
}

double copy_speed(device::Kind device) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  constexpr int kCopies = 10;
  const device::Arena arena(2 * kBytes, device);
  const auto streams = device::make_streams(device, {.timestamps = 2});
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    streams->timestamp(0);
    for (int i = 0; i < kCopies; ++i) streams->copy(arena.data() + kBytes, arena.data(), kBytes);
    streams->timestamp(1);
    streams->synchronize();
    best = std::max(best, 2.0 * kCopies * static_cast<double>(kBytes) / streams->seconds(0, 1));
  }
  return best;
}

std::uint64_t total_memory() { return usable_memory(); }

std::uint64_t memory_of(device::Kind device) {
  if (device == device::Kind::cpu) return total_memory();
  return device::cuda::gpus().empty() ? 0 : device::cuda::free_memory();
}

std::string whole_use(device::Kind device) {
  if (device == device::Kind::cpu) return "the whole process: " + format_bytes(resident_peak());
  return "the whole GPU: " + format_bytes(device::cuda::used_memory());
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
  // What getrusage says includes what the process was before it became this program: a launcher's size, perhaps.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace trireme::planner
