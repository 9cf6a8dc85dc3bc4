#pragma once
#include <cstdint>
#include <string>

#include "trireme/core/dtype.h"

namespace trireme::planner {

// What this machine can do, measured rather than looked up.

// Floating-point operations per second of a large matmul on `threads` cores; takes about a tenth of a second.
double matmul_flops(DType dtype, int threads);

std::uint64_t total_memory();   // bytes
std::string cpu_name();         // "AMD EPYC 9354"
std::string cpu_features();     // "AVX-512, AMX"
std::uint64_t resident_peak();  // this process's high-water mark, from the kernel

}  // namespace trireme::planner
