#pragma once
#include <cstddef>
#include <memory>

#include "trireme/ir/op_def.h"

// The CUDA kernels of the ops. They lie next to their CPU twins (`*_cuda.cu`); registered.cpp lists which op has which.
namespace trireme::ops {

// Adds to each op the kernel it has for CUDA; in a build without CUDA, nothing.
void add_cuda_kernels(ir::Registry& registry);

std::shared_ptr<device::Kernel> prepare_matmul_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_input_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_conv2d_grad_weight_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_max_pool2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_max_pool2d_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_avg_pool2d_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_attention_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_plain_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_plain_attention_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cached_attention_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rotary_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_softmax_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_softmax_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_embedding_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_embedding_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_local_tokens_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_accuracy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cross_entropy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cross_entropy_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_lse_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_linear_cross_entropy_given_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_lse_terms_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_join_lse_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_kl_divergence_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_kl_divergence_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mean_absolute_error_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_squared_error_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_quantize_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dequantize_int8_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_weighted_sum_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_pack_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_unpack_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_take_largest_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_taken_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_orthonormalise_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_add_n_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_mul_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_scale_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_relu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_gelu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_silu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_swiglu_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_cast_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_fill_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_select_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_layer_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_layer_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_rms_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_channel_moments_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_joint_squares_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_given_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_sums_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_batch_norm_dx_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_transpose_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sequence_slice_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_slice_grad_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_concat_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_reduce_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_broadcast_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_dropout_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_random_init_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_adamw_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sgd_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_descend_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_sum_squares_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_clip_scale_cuda(const ir::KernelSpec& spec);
std::shared_ptr<device::Kernel> prepare_adaptive_scale_cuda(const ir::KernelSpec& spec);

std::size_t matmul_workspace_cuda(const ir::KernelSpec& spec);
std::size_t conv2d_workspace_cuda(const ir::KernelSpec& spec);
std::size_t conv2d_grad_input_workspace_cuda(const ir::KernelSpec& spec);
std::size_t conv2d_grad_weight_workspace_cuda(const ir::KernelSpec& spec);
std::size_t attention_workspace_cuda(const ir::KernelSpec& spec);
std::size_t attention_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t plain_attention_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t embedding_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t accuracy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t cross_entropy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_lse_workspace_cuda(const ir::KernelSpec& spec);
std::size_t linear_cross_entropy_given_workspace_cuda(const ir::KernelSpec& spec);
std::size_t kl_divergence_workspace_cuda(const ir::KernelSpec& spec);
std::size_t regression_workspace_cuda(const ir::KernelSpec& spec);
std::size_t take_largest_workspace_cuda(const ir::KernelSpec& spec);
std::size_t orthonormalise_workspace_cuda(const ir::KernelSpec& spec);
std::size_t row_norm_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_grad_workspace_cuda(const ir::KernelSpec& spec);
std::size_t channel_moments_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_given_workspace_cuda(const ir::KernelSpec& spec);
std::size_t batch_norm_dx_workspace_cuda(const ir::KernelSpec& spec);
std::size_t reduce_workspace_cuda(const ir::KernelSpec& spec);
std::size_t sum_squares_workspace_cuda(const ir::KernelSpec& spec);

bool supports_plain_attention_cuda(const ir::KernelSpec& spec);
bool supports_rotary_cuda(const ir::KernelSpec& spec);

}  // namespace trireme::ops
