#include "trireme/ops/loss/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_loss_cuda(ir::Registry& registry) {
  on_cuda(registry, "accuracy", prepare_accuracy_cuda, accuracy_workspace_cuda);
  on_cuda(registry, "cross_entropy", prepare_cross_entropy_cuda, cross_entropy_workspace_cuda);
  on_cuda(registry, "cross_entropy_grad", prepare_cross_entropy_grad_cuda);
  on_cuda(registry, "linear_cross_entropy", prepare_linear_cross_entropy_cuda, linear_cross_entropy_workspace_cuda);
  on_cuda(registry, "linear_lse", prepare_linear_lse_cuda, linear_lse_workspace_cuda);
  on_cuda(registry, "linear_cross_entropy_given", prepare_linear_cross_entropy_given_cuda,
          linear_cross_entropy_given_workspace_cuda);
  on_cuda(registry, "lse_terms", prepare_lse_terms_cuda);
  on_cuda(registry, "join_lse", prepare_join_lse_cuda);
  on_cuda(registry, "kl_divergence", prepare_kl_divergence_cuda, kl_divergence_workspace_cuda);
  on_cuda(registry, "kl_divergence_grad", prepare_kl_divergence_grad_cuda);
  on_cuda(registry, "mean_absolute_error", prepare_mean_absolute_error_cuda, regression_workspace_cuda);
  on_cuda(registry, "mean_absolute_error_grad", prepare_mean_absolute_error_grad_cuda);
  on_cuda(registry, "squared_error", prepare_squared_error_cuda, regression_workspace_cuda);
  on_cuda(registry, "squared_error_grad", prepare_squared_error_grad_cuda);
}

}  // namespace trireme::ops
