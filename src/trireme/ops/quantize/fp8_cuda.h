#pragma once
#include "trireme/ops/define.h"

// The GPU's kernels of eight-bit floats: ops/quantize/fp8_cuda.cu and ops/cuda/fp8_matmul.cpp.
namespace trireme::ops {

std::shared_ptr<device::Kernel> prepare_fp8_scale_cuda(const ir::KernelSpec& spec);
std::size_t fp8_scale_workspace_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantize_fp8_cuda(const ir::KernelSpec& spec);

// The library multiplies matrices whose sizes are multiples of 16, on GPUs since Ada.
bool supports_matmul_fp8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_matmul_fp8_cuda(const ir::KernelSpec& spec);
std::size_t matmul_fp8_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
