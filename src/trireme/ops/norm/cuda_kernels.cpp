#include "trireme/ops/norm/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_norm_cuda(ir::Registry& registry) {
  on_cuda(registry, "layer_norm", prepare_layer_norm_cuda);
  on_cuda(registry, "layer_norm_grad", prepare_layer_norm_grad_cuda, layer_norm_grad_workspace_cuda);
  on_cuda(registry, "rms_norm", prepare_rms_norm_cuda);
  on_cuda(registry, "rms_norm_grad", prepare_rms_norm_grad_cuda, rms_norm_grad_workspace_cuda);
  on_cuda(registry, "batch_norm", prepare_batch_norm_cuda, batch_norm_workspace_cuda);
  on_cuda(registry, "batch_norm_grad", prepare_batch_norm_grad_cuda, batch_norm_grad_workspace_cuda);
  on_cuda(registry, "channel_moments", prepare_channel_moments_cuda, channel_moments_workspace_cuda);
  on_cuda(registry, "joint_squares", prepare_joint_squares_cuda);
  on_cuda(registry, "batch_norm_given", prepare_batch_norm_given_cuda, batch_norm_given_workspace_cuda);
  on_cuda(registry, "batch_norm_sums", prepare_batch_norm_sums_cuda, batch_norm_grad_workspace_cuda);
  on_cuda(registry, "batch_norm_dx", prepare_batch_norm_dx_cuda, batch_norm_dx_workspace_cuda);
}

}  // namespace trireme::ops
