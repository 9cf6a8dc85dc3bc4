#include "trireme/ops/random/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_random_cuda(ir::Registry& registry) {
  on_cuda(registry, "dropout", prepare_dropout_cuda);
  on_cuda(registry, "random_init", prepare_random_init_cuda);
}

}  // namespace trireme::ops
