#include "trireme/ops/elementwise/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_elementwise_cuda(ir::Registry& registry) {
  on_cuda(registry, "add", prepare_add_cuda);
  on_cuda(registry, "add_n", prepare_add_n_cuda);
  on_cuda(registry, "accumulate", prepare_add_cuda);
  on_cuda(registry, "mul", prepare_mul_cuda);
  on_cuda(registry, "scale", prepare_scale_cuda);
  on_cuda(registry, "relu", prepare_relu_cuda);
  on_cuda(registry, "relu_grad", prepare_relu_grad_cuda);
  on_cuda(registry, "gelu", prepare_gelu_cuda);
  on_cuda(registry, "gelu_grad", prepare_gelu_grad_cuda);
  on_cuda(registry, "silu", prepare_silu_cuda);
  on_cuda(registry, "silu_grad", prepare_silu_grad_cuda);
  on_cuda(registry, "swiglu", prepare_swiglu_cuda);
  on_cuda(registry, "swiglu_grad", prepare_swiglu_grad_cuda);
  on_cuda(registry, "cast", prepare_cast_cuda);
  on_cuda(registry, "fill", prepare_fill_cuda);
  on_cuda(registry, "select", prepare_select_cuda).groups = true;
}

}  // namespace trireme::ops
