#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "trireme/device/kernel.h"
#include "trireme/ir/op_def.h"

namespace trireme::ir {
class Graph;
struct Node;
}  // namespace trireme::ir

namespace trireme::cost {

// Nominal speeds that plans are made with. Fixed numbers, so that a configuration gives the same plan everywhere; a
// plan made with wrong ones is as right, only not as fast.
struct Rates {
  // Two cores of a current data-centre CPU: what their vector units and their memory do; and a local disk.
  double flops = 160e9;        // per second
  double memory = 20e9;        // bytes per second
  double launch = 2e-6;        // seconds around each kernel
  double graph_launch = 0;     // around a replay of captured kernels
  double graph_kernel = 0;     // around each kernel of a replay
  double tier = 1e9;           // bytes per second to or from another tier
  double tier_latency = 1e-4;  // seconds
  double host = 20e9;          // bytes per second that the host's cores read and write while a device computes

  double compute_seconds(const ir::Cost& cost) const {
    return launch + std::max(cost.flops / flops, (cost.bytes_read + cost.bytes_written) / memory);
  }
  double host_seconds(const ir::Cost& cost) const {
    return tier_latency + (cost.bytes_read + cost.bytes_written) / host;
  }
  double move_seconds(std::size_t bytes) const { return tier_latency + static_cast<double>(bytes) / tier; }

  // A current data-centre GPU, its link to the host, and that host's memory: what whole steps in low precision get of
  // it, attention and the ends of kernels included (an H200's best matrix products do 800 TFLOP/s).
  static Rates of(device::Kind device) {
    if (device == device::Kind::cpu) return {};
    return {.flops = 6e14,
            .memory = 4.1e12,
            .launch = 3e-6,
            .graph_launch = 3e-6,
            .graph_kernel = 0.75e-6,
            .tier = 5e10,
            .tier_latency = 1e-5,
            .host = 1e11};
  }
};

// Seconds that a node takes by its op's own cost on a device of round numbers: decisions made with them are the same on
// every machine and in every run. What they are good for are ratios.
double nominal_seconds(const ir::Graph& graph, const ir::Node& node, const Rates& rates);

// When each node of a graph starts, one after the other, as if nothing had to be waited for; and when the last one
// ends.
std::vector<double> start_times(const ir::Graph& graph, const Rates& rates);

}  // namespace trireme::cost
