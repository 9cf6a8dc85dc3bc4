#include "trireme/ops/matmul/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_matmul_cuda(ir::Registry& registry) {
  on_cuda(registry, "matmul", prepare_matmul_cuda, matmul_workspace_cuda);
  on_cuda(registry, "matmul_fp8", prepare_matmul_fp8_cuda, matmul_fp8_workspace_cuda, supports_matmul_fp8_cuda);
  on_cuda(registry, "gated_linear", prepare_gated_linear_cuda, gated_linear_workspace_cuda);
  on_cuda(registry, "gated_linear_grad", prepare_gated_linear_grad_cuda, gated_linear_grad_workspace_cuda);
}

}  // namespace trireme::ops
