#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/define.h"
#include "trireme/ops/matmul/gated_cuda.h"
#include "trireme/ops/quantize/fp8_cuda.h"

namespace trireme::ops {
namespace {

// For the types and sizes that `supports` names; null: whatever `infer` accepts.
using Supports = bool (*)(const ir::KernelSpec&);
ir::KernelDef& on_cuda(ir::OpDef& def, Prepare prepare, Workspace workspace, Supports supports) {
  ir::KernelDef& kernel = def.kernels[device::Kind::cuda];
  kernel.supports = [](const ir::KernelSpec&) { return true; };
  if (supports != nullptr) kernel.supports = supports;
  kernel.prepare = prepare;
  if (workspace != nullptr) kernel.workspace = workspace;
  return kernel;
}

}  // namespace

void add_cuda_kernels(ir::Registry& registry) {
  const auto add = [&](const char* op, Prepare prepare, Workspace workspace = nullptr,
                       Supports supports = nullptr) -> ir::KernelDef& {
    return on_cuda(registry.edit(op), prepare, workspace, supports);
  };
  add("matmul", prepare_matmul_cuda, matmul_workspace_cuda);
  add("conv2d", prepare_conv2d_cuda, conv2d_workspace_cuda);
  add("conv2d_grad_input", prepare_conv2d_grad_input_cuda, conv2d_grad_input_workspace_cuda);
  add("conv2d_grad_weight", prepare_conv2d_grad_weight_cuda, conv2d_grad_weight_workspace_cuda);
  add("max_pool2d", prepare_max_pool2d_cuda);
  add("max_pool2d_grad", prepare_max_pool2d_grad_cuda);
  add("avg_pool2d", prepare_avg_pool2d_cuda);
  add("avg_pool2d_grad", prepare_avg_pool2d_grad_cuda);
  add("attention", prepare_attention_cuda, attention_workspace_cuda, supports_plain_attention_cuda);
  add("attention_grad", prepare_attention_grad_cuda, attention_grad_workspace_cuda, supports_plain_attention_cuda);
  add("cached_attention", prepare_cached_attention_cuda, nullptr, supports_plain_attention_cuda);
  add("rotary", prepare_rotary_cuda, nullptr, supports_rotary_cuda);
  add("softmax", prepare_softmax_cuda);
  add("softmax_grad", prepare_softmax_grad_cuda);
  add("embedding", prepare_embedding_cuda);
  add("local_tokens", prepare_local_tokens_cuda);
  add("embedding_grad", prepare_embedding_grad_cuda, embedding_grad_workspace_cuda);
  add("accuracy", prepare_accuracy_cuda, accuracy_workspace_cuda);
  add("cross_entropy", prepare_cross_entropy_cuda, cross_entropy_workspace_cuda);
  add("cross_entropy_grad", prepare_cross_entropy_grad_cuda);
  add("linear_cross_entropy", prepare_linear_cross_entropy_cuda, linear_cross_entropy_workspace_cuda);
  add("linear_lse", prepare_linear_lse_cuda, linear_lse_workspace_cuda);
  add("linear_cross_entropy_given", prepare_linear_cross_entropy_given_cuda, linear_cross_entropy_given_workspace_cuda);
  add("lse_terms", prepare_lse_terms_cuda);
  add("join_lse", prepare_join_lse_cuda);
  add("kl_divergence", prepare_kl_divergence_cuda, kl_divergence_workspace_cuda);
  add("kl_divergence_grad", prepare_kl_divergence_grad_cuda);
  add("mean_absolute_error", prepare_mean_absolute_error_cuda, regression_workspace_cuda);
  add("mean_absolute_error_grad", prepare_mean_absolute_error_grad_cuda);
  add("squared_error", prepare_squared_error_cuda, regression_workspace_cuda);
  add("squared_error_grad", prepare_squared_error_grad_cuda);
  add("quantize_int8", prepare_quantize_int8_cuda);
  add("fp8_scale", prepare_fp8_scale_cuda, fp8_scale_workspace_cuda);
  add("quantize_fp8", prepare_quantize_fp8_cuda);
  add("matmul_fp8", prepare_matmul_fp8_cuda, matmul_fp8_workspace_cuda, supports_matmul_fp8_cuda);
  add("dequantize_int8", prepare_dequantize_int8_cuda);
  add("weighted_sum", prepare_weighted_sum_cuda);
  add("pack", prepare_pack_cuda);
  add("unpack", prepare_unpack_cuda);
  add("take_largest", prepare_take_largest_cuda, take_largest_workspace_cuda);
  add("add_taken", prepare_add_taken_cuda);
  add("orthonormalise", prepare_orthonormalise_cuda, orthonormalise_workspace_cuda);
  add("add", prepare_add_cuda);
  add("add_n", prepare_add_n_cuda);
  add("accumulate", prepare_add_cuda);
  add("mul", prepare_mul_cuda);
  add("scale", prepare_scale_cuda);
  add("relu", prepare_relu_cuda);
  add("relu_grad", prepare_relu_grad_cuda);
  add("gelu", prepare_gelu_cuda);
  add("gelu_grad", prepare_gelu_grad_cuda);
  add("silu", prepare_silu_cuda);
  add("silu_grad", prepare_silu_grad_cuda);
  add("swiglu", prepare_swiglu_cuda);
  add("swiglu_grad", prepare_swiglu_grad_cuda);
  add("gated_linear", prepare_gated_linear_cuda, gated_linear_workspace_cuda);
  add("gated_linear_grad", prepare_gated_linear_grad_cuda, gated_linear_grad_workspace_cuda);
  add("cast", prepare_cast_cuda);
  add("fill", prepare_fill_cuda);
  add("select", prepare_select_cuda).groups = true;
  add("layer_norm", prepare_layer_norm_cuda);
  add("layer_norm_grad", prepare_layer_norm_grad_cuda, row_norm_grad_workspace_cuda);
  add("rms_norm", prepare_rms_norm_cuda);
  add("rms_norm_grad", prepare_rms_norm_grad_cuda, row_norm_grad_workspace_cuda);
  add("batch_norm", prepare_batch_norm_cuda, batch_norm_workspace_cuda);
  add("batch_norm_grad", prepare_batch_norm_grad_cuda, batch_norm_grad_workspace_cuda);
  add("channel_moments", prepare_channel_moments_cuda, channel_moments_workspace_cuda);
  add("joint_squares", prepare_joint_squares_cuda);
  add("batch_norm_given", prepare_batch_norm_given_cuda, batch_norm_given_workspace_cuda);
  add("batch_norm_sums", prepare_batch_norm_sums_cuda, batch_norm_grad_workspace_cuda);
  add("batch_norm_dx", prepare_batch_norm_dx_cuda, batch_norm_dx_workspace_cuda);
  add("transpose", prepare_transpose_cuda);
  add("slice", prepare_slice_cuda);
  add("sequence_slice", prepare_sequence_slice_cuda);
  add("slice_grad", prepare_slice_grad_cuda);
  add("concat", prepare_concat_cuda);
  add("reduce", prepare_reduce_cuda, reduce_workspace_cuda);
  add("broadcast", prepare_broadcast_cuda);
  add("dropout", prepare_dropout_cuda);
  add("random_init", prepare_random_init_cuda);
  const Supports keeps_all = [](const ir::KernelSpec& spec) { return !spec.inputs.back().present; };
  add("adamw", prepare_adamw_cuda, nullptr, keeps_all).groups = true;
  add("sgd", prepare_sgd_cuda, nullptr, keeps_all).groups = true;
  add("descend", prepare_descend_cuda);
  for (const char* op : {"sum_squares", "sum_squares_part"}) {
    ir::KernelDef& squares = add(op, prepare_sum_squares_cuda, sum_squares_workspace_cuda);
    squares.groups = squares.shares_workspace = true;
  }
  add("clip_scale", prepare_clip_scale_cuda);
  add("adaptive_scale", prepare_adaptive_scale_cuda);
}

}  // namespace trireme::ops
