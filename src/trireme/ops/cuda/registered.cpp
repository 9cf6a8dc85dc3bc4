#include "trireme/ops/attention/cuda_kernels.h"
#include "trireme/ops/compress/cuda_kernels.h"
#include "trireme/ops/conv/cuda_kernels.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/cuda_kernels.h"
#include "trireme/ops/embedding/cuda_kernels.h"
#include "trireme/ops/loss/cuda_kernels.h"
#include "trireme/ops/matmul/cuda_kernels.h"
#include "trireme/ops/norm/cuda_kernels.h"
#include "trireme/ops/optimizer/cuda_kernels.h"
#include "trireme/ops/quantize/cuda_kernels.h"
#include "trireme/ops/random/cuda_kernels.h"
#include "trireme/ops/shape/cuda_kernels.h"

namespace trireme::ops {

ir::KernelDef& on_cuda(ir::Registry& registry, const char* op, Prepare prepare, Workspace workspace,
                       CudaSupports supports) {
  ir::KernelDef& kernel = registry.edit(op).kernels[device::Kind::cuda];
  kernel.supports = [](const ir::KernelSpec&) { return true; };
  if (supports != nullptr) kernel.supports = supports;
  kernel.prepare = prepare;
  if (workspace != nullptr) kernel.workspace = workspace;
  return kernel;
}

void add_cuda_kernels(ir::Registry& registry) {
  add_attention_cuda(registry);
  add_compress_cuda(registry);
  add_conv_cuda(registry);
  add_elementwise_cuda(registry);
  add_embedding_cuda(registry);
  add_loss_cuda(registry);
  add_matmul_cuda(registry);
  add_norm_cuda(registry);
  add_optimizer_cuda(registry);
  add_quantize_cuda(registry);
  add_random_cuda(registry);
  add_shape_cuda(registry);
}

}  // namespace trireme::ops
