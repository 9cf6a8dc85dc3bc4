#pragma once
#include <cstdint>

#include "trireme/core/dtype.h"
#include "trireme/ir/op_def.h"

namespace trireme::ops {

// One tile of a matmul's sums and where it goes. Matrices are row-major; `y`, `pre` and `aux` share one leading
// dimension.
struct EpilogueTile {
  const float* sums = nullptr;
  std::int64_t ld_sums = 0;
  std::int64_t rows = 0, columns = 0;
  const float* bias = nullptr;  // one per column, or absent
  const void* aux = nullptr;
  void* pre = nullptr;  // or absent
  void* y = nullptr;
  std::int64_t ld = 0;
};

// Turns a tile of sums into y, and pre where asked for: adds the bias, applies the activation or multiplies by its
// derivative at aux or adds aux, adds what y holds when the kernel accumulates, and converts. `sums` may be y itself,
// and y may be aux.
using Epilogue = void (*)(const EpilogueTile&);
Epilogue matmul_epilogue(const ir::KernelSpec& spec);

}  // namespace trireme::ops
