#include "trireme/ops/attention/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_attention_cuda(ir::Registry& registry) {
  on_cuda(registry, "attention", prepare_attention_cuda, attention_workspace_cuda, supports_plain_attention_cuda);
  on_cuda(registry, "attention_grad", prepare_attention_grad_cuda, attention_grad_workspace_cuda,
          supports_plain_attention_cuda);
  on_cuda(registry, "cached_attention", prepare_cached_attention_cuda, nullptr, supports_plain_attention_cuda);
  on_cuda(registry, "cached_attention_int8", prepare_cached_attention_int8_cuda, nullptr,
          supports_plain_attention_cuda);
  on_cuda(registry, "document_starts", prepare_document_starts_cuda);
  on_cuda(registry, "rotary", prepare_rotary_cuda, nullptr, supports_rotary_cuda);
  on_cuda(registry, "softmax", prepare_softmax_cuda);
  on_cuda(registry, "softmax_grad", prepare_softmax_grad_cuda);
}

}  // namespace trireme::ops
