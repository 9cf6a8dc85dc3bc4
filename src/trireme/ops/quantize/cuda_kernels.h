#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of this folder's ops, and the function that gives each op its own.
namespace trireme::ops {

void add_quantize_cuda(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_quantize_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dequantize_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_fp8_scale_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantize_fp8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantized_linear_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantized_embedding_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dequantize_rows_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_int8_linear_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_round_to_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_largest_magnitude_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_round_to_codes_cuda(const ir::KernelSpec& spec);

std::size_t fp8_scale_workspace_cuda(const ir::KernelSpec& spec);
std::size_t quantized_linear_workspace_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
