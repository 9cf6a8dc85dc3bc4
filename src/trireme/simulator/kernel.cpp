#include "trireme/simulator/kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/core/error.h"
#include "trireme/ops/attention/attention_shape.h"
#include "trireme/ops/matmul/problem.h"

namespace trireme::simulator {
namespace {

using cluster::Device;
using cluster::Tile;

double peak_of(const Device& device, const std::string& dtype) {
  if (const auto found = device.flops.find(dtype); found != device.flops.end()) return found->second;
  // The closest format that the description knows.
  for (const char* other : {"bf16", "f16", "f32"})
    if ((dtype == "f16" || dtype == "bf16" || std::string_view(other) == "f32") && device.flops.contains(other))
      return device.flops.at(other);
  return device.flops.begin()->second;
}

// Seconds of m × n × k at `peak`, in whole tiles and waves.
double product_seconds(const std::vector<double>& sizes, const Device& device, double peak) {
  const auto [m, n, k] = std::tuple(sizes[0], sizes[1], sizes[2]);
  const double ramp = 1 + device.depth / std::max(1.0, k);
  const double reached = peak * device.matmul_efficiency;
  if (device.tiles.empty()) return 2 * m * n * k * ramp / reached;
  double best = std::numeric_limits<double>::infinity();
  const auto units = static_cast<double>(device.units);
  for (const Tile& tile : device.tiles)
    for (const auto& [rows, columns] : {std::pair(tile.rows, tile.columns), std::pair(tile.columns, tile.rows)}) {
      const double waves = std::ceil(std::ceil(m / rows) * std::ceil(n / columns) / units);
      best = std::min(best, waves * units * rows * columns * 2 * k * ramp / (reached * tile.efficiency));
    }
  return best;
}

double estimate(const Kernel& kernel, const Device& device, const cluster::Software& software, int threads) {
  const bool cpu = device.kind == "cpu";
  const double peak = peak_of(device, kernel.dtype) * (cpu ? threads : 1);
  const bool scores = software.attention == "scores" && kernel.score_bytes > 0;
  double compute = 0;
  if (kernel.product) {
    compute = product_seconds(kernel.sizes, device, peak);
  } else {
    const auto share = device.kernels.find(kernel.op);
    // Unfused, the products of attention are ordinary ones, over all pairs.
    const double reached = scores                          ? device.matmul_efficiency
                           : share != device.kernels.end() ? share->second
                                                           : device.matmul_efficiency;
    const bool matrix = scores || kernel.matrix || share != device.kernels.end();
    const double rate = matrix ? peak : peak_of(device, "f32") * (cpu ? threads : 1);
    compute = kernel.cost.flops * (scores ? kernel.hidden : 1) / (rate * reached);
  }
  double bytes = kernel.cost.bytes_read + kernel.cost.bytes_written;
  const double bandwidth = device.memory_bandwidth * device.memory_efficiency;
  double seconds = std::max(compute, bytes / bandwidth);
  if (scores) {
    const double passes = kernel.op == "attention" ? software.forward_passes : software.backward_passes;
    seconds = compute + (bytes + passes * kernel.score_bytes) / bandwidth;
  }
  const bool matrix = kernel.product || kernel.matrix || kernel.score_bytes > 0 || device.kernels.contains(kernel.op);
  return device.launch + seconds * software.compute * (matrix ? 1 : software.elementwise);
}

constexpr std::string_view kSums = "+sum";

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::log2(std::max(1.0, a[i])) - std::log2(std::max(1.0, b[i]));
    sum += d * d;
  }
  return sum;
}

}  // namespace

Kernel kernel_of(const program::Instruction& launch) {
  ir::Types inputs, outputs;
  for (const program::Operand& o : launch.inputs) inputs.push_back(o.type);
  for (const program::Operand& o : launch.outputs) outputs.push_back(o.type);
  Kernel kernel = kernel_of(*launch.op, inputs, outputs, launch.attributes);
  if (launch.accumulate) kernel.name += kSums;
  return kernel;
}

Kernel kernel_of(const ir::OpDef& op, const ir::Types& inputs, const ir::Types& outputs,
                 const ir::Attributes& attributes) {
  Kernel kernel;
  kernel.op = kernel.name = op.name;
  kernel.cost = op.cost(inputs, outputs, attributes);
  kernel.matrix = op.precision == ir::Precision::low;
  kernel.dtype = "f32";
  for (const TensorType& type : inputs)
    if (type.present && is_float(type.dtype)) {
      kernel.dtype = name_of(type.dtype);
      break;
    }
  kernel.sizes = {kernel.cost.flops, kernel.cost.bytes_read + kernel.cost.bytes_written};
  if (op.name == "matmul") {
    const ops::MatmulProblem p = ops::matmul_problem(inputs[0], inputs[1], attributes);
    kernel.product = true;
    kernel.sizes = {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k)};
    if (p.trans_a) kernel.name += "+ta";
    if (p.trans_b) kernel.name += "+tb";
    if (kernel.dtype == "f32" && attributes.boolean("tf32")) kernel.dtype = "tf32";
  } else if (op.name == "attention" || op.name == "attention_grad") {
    const ops::AttentionShape s = ops::attention_shape(std::span(inputs).first(3), attributes);
    const double pairs = static_cast<double>(s.batch * s.heads) * static_cast<double>(s.queries * s.keys);
    kernel.score_bytes = pairs * static_cast<double>(size_of(inputs[0].dtype));
    kernel.hidden = pairs / s.visible_pairs();
  }
  return kernel;
}

KernelSeconds timed_kernel(const Kernel& kernel, const Device& device, const cluster::Software& software, int threads) {
  const double estimated = estimate(kernel, device, software, threads);
  // The ratios of the four nearest measurements, the nearer the heavier.
  constexpr std::size_t kNearest = 4;
  struct Near {
    double distance, ratio, crowded;  // the ratio is a logarithm
  };
  std::vector<Near> near;
  for (const cluster::MeasuredKernel& m : device.measured) {
    if (m.kernel != kernel.name || m.dtype != kernel.dtype || m.threads != threads ||
        m.sizes.size() != kernel.sizes.size())
      continue;
    const double d = distance(m.sizes, kernel.sizes);
    const double alone = m.seconds + device.launch;
    const double crowded = m.crowded > 0 ? (m.crowded + device.launch) / alone : 0;
    if (d == 0) return {alone, crowded};
    Kernel other = kernel;
    other.sizes = m.sizes;
    if (!kernel.product) other.cost = {m.sizes[0], m.sizes[1], 0};
    near.push_back({d, std::log(alone / estimate(other, device, software, threads)), crowded});
  }
  if (near.empty() && kernel.name.ends_with(kSums)) {
    Kernel plain = kernel;
    plain.name.resize(plain.name.size() - kSums.size());
    return timed_kernel(plain, device, software, threads);
  }
  if (near.empty()) return {estimated, 0};
  std::stable_sort(near.begin(), near.end(), [](const Near& a, const Near& b) { return a.distance < b.distance; });
  near.resize(std::min(near.size(), kNearest));
  double sum = 0, weights = 0, crowded = 0;
  for (const Near& n : near) {
    sum += n.ratio / n.distance;
    crowded += n.crowded / n.distance;
    weights += 1 / n.distance;
  }
  const bool all = std::all_of(near.begin(), near.end(), [](const Near& n) { return n.crowded > 0; });
  return {estimated * std::exp(sum / weights), all ? crowded / weights : 0};
}

double kernel_seconds(const Kernel& kernel, const Device& device, const cluster::Software& software, int threads) {
  return timed_kernel(kernel, device, software, threads).seconds;
}

}  // namespace trireme::simulator
