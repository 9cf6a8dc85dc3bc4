#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_cuda_kernels(ir::Registry&) {}

}  // namespace trireme::ops
