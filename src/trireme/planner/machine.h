#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/core/shape.h"
#include "trireme/device/kernel.h"
#include "trireme/ir/attributes.h"

namespace trireme::planner {

// What this machine can do, measured rather than looked up.

// A product c[m,n] = a[m,k] · b[k,n]; a transposed operand is stored the other way round.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  DType dtype = DType::f32;
  bool tf32 = false;  // as matmul has it

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};
// Seconds of an op with these inputs on `threads` cores, or on a GPU: the fastest within about a tenth of a second.
// Attributes that are not given have their defaults. A GPU's inputs are random.
double op_seconds(const std::string& name, const std::vector<TensorType>& inputs, const ir::Attributes& attributes,
                  int threads, device::Kind device);
double product_seconds(const Product& product, int threads, device::Kind device = device::Kind::cpu);

// Floating-point operations per second of a large matmul.
double matmul_flops(DType dtype, int threads, device::Kind device = device::Kind::cpu, bool tf32 = false);

// Bytes read and written per second by a large copy within a GPU's memory.
double copy_speed(device::Kind device);

std::uint64_t total_memory();  // bytes of this machine, or what its control group lets this process have of them
// "the whole process: 1.2 GiB" of the host's memory, or "the whole GPU: 12.6 GiB", with what driver, libraries and
// other programs take: what a memory plan does not see.
std::string whole_use(device::Kind device);
std::uint64_t memory_of(device::Kind device);  // bytes that a program may take there; 0: there is no such device here
std::string cpu_name();                        // "AMD EPYC 9354"
std::string cpu_features();                    // "AVX-512, AMX"
std::uint64_t resident_peak();                 // this process's high-water mark, from the kernel

}  // namespace trireme::planner
