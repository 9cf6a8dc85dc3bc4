#include "trireme/planner/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/rng.h"
#include "trireme/core/text.h"
#include "trireme/device/arena.h"
#include "trireme/device/cuda/cuda.h"
#include "trireme/device/queue.h"
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

double product_seconds(const Product& p, int threads, device::Kind device) {
  const bool cpu = device == device::Kind::cpu;
  const TensorType a{p.dtype, p.trans_a ? Shape{p.k, p.m} : Shape{p.m, p.k}};
  const TensorType b{p.dtype, p.trans_b ? Shape{p.n, p.k} : Shape{p.k, p.n}};
  const TensorType c{p.dtype, {p.m, p.n}};
  const ir::OpDef op = ops::builtin().at("matmul");
  ir::Attributes attributes;
  for (const ir::AttributeSpec& spec : op.attributes) attributes.set(spec.name, spec.fallback);
  attributes.set("trans_a", p.trans_a);
  attributes.set("trans_b", p.trans_b);
  attributes.set("a_split", std::int64_t{1});
  attributes.set("b_split", std::int64_t{1});
  attributes.set("tf32", p.tf32);
  const std::vector<TensorType> inputs = {a, b, TensorType::none(), TensorType::none()};
  const std::vector<TensorType> outputs = {c};
  const ir::KernelSpec spec{inputs, outputs, attributes, threads};
  const ir::KernelDef& kernel = op.kernels.at(device);
  const auto prepared = kernel.prepare(spec);
  auto next = [at = std::size_t{0}](std::size_t bytes) mutable {
    const std::size_t begin = at;
    at += (bytes + 255) / 256 * 256;
    return begin;
  };
  const std::size_t a_at = next(a.bytes()), b_at = next(b.bytes()), c_at = next(c.bytes());
  const std::size_t scratch_at = next(kernel.workspace(spec));
  const device::Arena arena(next(0), device);
  std::byte* const base = arena.data();
  if (!cpu) fill_randomly(arena, p.dtype, c_at);
  const std::vector<const void*> in = {base + a_at, base + b_at, nullptr, nullptr};
  const std::vector<void*> out = {base + c_at};
  ThreadPool pool(threads);
  const auto queue = device::make_queue(device);
  const device::Launch launch{in, out, base + scratch_at, &pool, queue ? queue->native() : nullptr};
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  const int together = cpu ? 1 : 10;  // products between two looks at the clock
  while (std::chrono::duration<double>(Clock::now() - start).count() < 0.1) {
    const auto begin = Clock::now();
    for (int i = 0; i < together; ++i) prepared->launch(launch);
    if (queue) queue->synchronize();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / together);
  }
  return best;
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
  const auto queue = device::make_queue(device, {.marks = 2});
  TRI_CHECK(queue != nullptr, "copies are measured where a queue makes them");
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    queue->mark(0);
    for (int i = 0; i < kCopies; ++i) queue->copy(arena.data() + kBytes, arena.data(), kBytes);
    queue->mark(1);
    queue->synchronize();
    best = std::max(best, 2.0 * kCopies * static_cast<double>(kBytes) / queue->seconds(0, 1));
  }
  return best;
}

std::uint64_t total_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

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
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace trireme::planner
