#pragma once
#include "trireme/ops/define.h"

// How ops come by their CUDA kernels. A kernel lies next to its CPU twin (`*_cuda.cu`), and the `cuda_kernels.cpp` of
// that folder says which op it is for.
namespace trireme::ops {

// Adds to each op the kernel it has for CUDA; in a build without CUDA, nothing.
void add_cuda_kernels(ir::Registry& registry);

// Makes `prepare` the CUDA kernel of `op`, for the types and sizes that `supports` names; null: whatever `infer`
// accepts.
using CudaSupports = bool (*)(const ir::KernelSpec&);
ir::KernelDef& on_cuda(ir::Registry& registry, const char* op, Prepare prepare, Workspace workspace = nullptr,
                       CudaSupports supports = nullptr);

}  // namespace trireme::ops
