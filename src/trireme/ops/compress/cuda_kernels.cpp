#include "trireme/ops/compress/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_compress_cuda(ir::Registry& registry) {
  on_cuda(registry, "weighted_sum", prepare_weighted_sum_cuda);
  on_cuda(registry, "pack", prepare_pack_cuda);
  on_cuda(registry, "unpack", prepare_unpack_cuda);
  on_cuda(registry, "take_largest", prepare_take_largest_cuda, take_largest_workspace_cuda);
  on_cuda(registry, "add_taken", prepare_add_taken_cuda);
  on_cuda(registry, "keep_largest", prepare_keep_largest_cuda, keep_largest_workspace_cuda);
  on_cuda(registry, "ramp", prepare_ramp_cuda);
  on_cuda(registry, "orthonormalise", prepare_orthonormalise_cuda, orthonormalise_workspace_cuda);
}

}  // namespace trireme::ops
