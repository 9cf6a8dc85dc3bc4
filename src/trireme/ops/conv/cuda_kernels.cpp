#include "trireme/ops/conv/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_conv_cuda(ir::Registry& registry) {
  on_cuda(registry, "conv2d", prepare_conv2d_cuda, conv2d_workspace_cuda);
  on_cuda(registry, "conv2d_grad_input", prepare_conv2d_grad_input_cuda, conv2d_grad_input_workspace_cuda);
  on_cuda(registry, "conv2d_grad_weight", prepare_conv2d_grad_weight_cuda, conv2d_grad_weight_workspace_cuda);
  on_cuda(registry, "max_pool2d", prepare_max_pool2d_cuda);
  on_cuda(registry, "max_pool2d_grad", prepare_max_pool2d_grad_cuda);
  on_cuda(registry, "avg_pool2d", prepare_avg_pool2d_cuda);
  on_cuda(registry, "avg_pool2d_grad", prepare_avg_pool2d_grad_cuda);
}

}  // namespace trireme::ops
