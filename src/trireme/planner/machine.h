#pragma once
#include <cstdint>
#include <string>

#include "trireme/core/dtype.h"
#include "trireme/device/kernel.h"

namespace trireme::planner {

// What this machine can do, measured rather than looked up.

// Floating-point operations per second of a large matmul on `threads` cores, or on a GPU; takes about a tenth of a
// second.
double matmul_flops(DType dtype, int threads, device::Kind device = device::Kind::cpu);

// Bytes read and written per second by a large copy within a GPU's memory.
double copy_speed(device::Kind device);

std::uint64_t total_memory();                  // bytes
std::uint64_t memory_of(device::Kind device);  // bytes that a program may take there; 0: there is no such device here
std::string cpu_name();                        // "AMD EPYC 9354"
std::string cpu_features();                    // "AVX-512, AMX"
std::uint64_t resident_peak();                 // this process's high-water mark, from the kernel

}  // namespace trireme::planner
