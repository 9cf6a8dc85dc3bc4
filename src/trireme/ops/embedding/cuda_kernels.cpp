#include "trireme/ops/embedding/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_embedding_cuda(ir::Registry& registry) {
  on_cuda(registry, "embedding", prepare_embedding_cuda);
  on_cuda(registry, "local_tokens", prepare_local_tokens_cuda);
  on_cuda(registry, "embedding_grad", prepare_embedding_grad_cuda, embedding_grad_workspace_cuda);
}

}  // namespace trireme::ops
