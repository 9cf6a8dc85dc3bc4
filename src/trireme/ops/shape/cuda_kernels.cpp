#include "trireme/ops/shape/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_shape_cuda(ir::Registry& registry) {
  on_cuda(registry, "transpose", prepare_transpose_cuda);
  on_cuda(registry, "slice", prepare_slice_cuda);
  on_cuda(registry, "sequence_slice", prepare_sequence_slice_cuda);
  on_cuda(registry, "slice_grad", prepare_slice_grad_cuda);
  on_cuda(registry, "slice_update", prepare_slice_update_cuda);
  on_cuda(registry, "concat", prepare_concat_cuda);
  on_cuda(registry, "reduce", prepare_reduce_cuda, reduce_workspace_cuda);
  on_cuda(registry, "broadcast", prepare_broadcast_cuda);
}

}  // namespace trireme::ops
