#pragma once

namespace trireme::ops {

// What the CPU kernels of this library are compiled for: "AVX-512", "AVX2" or what Highway calls a lesser one. A
// package has the library for several sets, and the loader takes the best that the processor has.
const char* instruction_set();

}  // namespace trireme::ops
