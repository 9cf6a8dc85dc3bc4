#pragma once
#include <string>
#include <vector>

#include "trireme/cluster/cluster.h"
#include "trireme/program/program.h"

namespace trireme::simulator {

// What decides the time of a launch.
struct Kernel {
  // The op; of a product also how its operands are stored: "matmul", "matmul+ta", "matmul+tb"; "+sum": adds to output 0
  std::string name;
  std::string op;
  std::string dtype;  // of its first float operand; "tf32" where it may round to it
  ir::Cost cost;
  std::vector<double> sizes;  // of a product m, n and k; else operations and bytes
  bool product = false;
  bool matrix = false;     // made for the units that multiply matrices
  double score_bytes = 0;  // attention: of all pairs of a query and a key
  double hidden = 1;       // attention: pairs, over those that are visible
};
Kernel kernel_of(const program::Instruction& launch);
// Of a node, before it is lowered.
Kernel kernel_of(const ir::OpDef& op, const ir::Types& inputs, const ir::Types& outputs,
                 const ir::Attributes& attributes);

struct KernelSeconds {
  double seconds = 0;
  double crowded = 0;  // times as long while other ranks keep the other cores busy; 0: was not measured
};

// On `threads` cores of a CPU, or on a GPU.
//
// A kernel that was measured takes what it took; between measurements of the same kernel, dtype and threads, the ratio
// to the estimate below is interpolated in the logarithm of the sizes. The estimate is the larger of operations over
// the rate that the op reaches and bytes over the bandwidth, plus the launch. Products are rounded up to whole tiles
// and to whole waves of tiles, for the tile that does best.
KernelSeconds timed_kernel(const Kernel& kernel, const cluster::Device& device, const cluster::Software& software,
                           int threads);
double kernel_seconds(const Kernel& kernel, const cluster::Device& device, const cluster::Software& software,
                      int threads);

}  // namespace trireme::simulator
