#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/op_check.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/graph.h"

namespace trireme::testing {

// Where ops are tested: the CPU, or with TRIREME_TEST_DEVICE=cuda a GPU.
device::Kind test_device();
// Whether every node of graph "micro" has a kernel there; a failure of the test if not.
bool has_kernels(const ir::Module& module);

struct GuardedOptions {
  int threads = 1;
  std::optional<std::pair<int, int>> in_place;  // {output, input} of the first launch share a buffer
};

// Lowers graph "micro" of a module without state, gives every buffer its own place with guard bytes on both sides, runs
// it twice or more, and fails the test when a guard byte changed, or when kernels still allocate memory after the first
// run, or much in it. Outputs in the order of the graph's outputs.
std::vector<Tensor> run_guarded(const ir::Module& module, const std::map<std::string, Tensor>& inputs,
                                const GuardedOptions& options);

// Conversion between host doubles and a dtype's bytes.
std::vector<std::byte> to_bytes(const Tensor& tensor);
Tensor from_bytes(const TensorType& type, const std::byte* data);

}  // namespace trireme::testing
