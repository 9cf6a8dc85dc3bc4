#include "trireme/ops/optimizer/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_optimizer_cuda(ir::Registry& registry) {
  on_cuda(registry, "adamw", prepare_adamw_cuda).groups = true;
  on_cuda(registry, "sgd", prepare_sgd_cuda).groups = true;
  on_cuda(registry, "descend", prepare_descend_cuda);
  for (const char* op : {"sum_squares", "sum_squares_part"}) {
    ir::KernelDef& squares = on_cuda(registry, op, prepare_sum_squares_cuda, sum_squares_workspace_cuda);
    squares.groups = squares.shares_workspace = true;
  }
  on_cuda(registry, "clip_scale", prepare_clip_scale_cuda);
  on_cuda(registry, "adaptive_scale", prepare_adaptive_scale_cuda);
}

}  // namespace trireme::ops
