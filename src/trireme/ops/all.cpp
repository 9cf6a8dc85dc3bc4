#include "trireme/ops/all.h"

#include "trireme/ops/attention/attention.h"
#include "trireme/ops/attention/cached_attention.h"
#include "trireme/ops/attention/cached_attention_int8.h"
#include "trireme/ops/attention/document_starts.h"
#include "trireme/ops/attention/rotary.h"
#include "trireme/ops/attention/softmax.h"
#include "trireme/ops/collective/collective.h"
#include "trireme/ops/collective/halo.h"
#include "trireme/ops/collective/message.h"
#include "trireme/ops/compress/keep_largest.h"
#include "trireme/ops/compress/orthonormalise.h"
#include "trireme/ops/compress/pack.h"
#include "trireme/ops/compress/take_largest.h"
#include "trireme/ops/compress/weighted_sum.h"
#include "trireme/ops/conv/conv2d.h"
#include "trireme/ops/conv/pool2d.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/add.h"
#include "trireme/ops/elementwise/cast.h"
#include "trireme/ops/elementwise/fill.h"
#include "trireme/ops/elementwise/gelu.h"
#include "trireme/ops/elementwise/mul.h"
#include "trireme/ops/elementwise/relu.h"
#include "trireme/ops/elementwise/select.h"
#include "trireme/ops/elementwise/silu.h"
#include "trireme/ops/embedding/embedding.h"
#include "trireme/ops/loss/accuracy.h"
#include "trireme/ops/loss/cross_entropy.h"
#include "trireme/ops/loss/kl_divergence.h"
#include "trireme/ops/loss/linear_cross_entropy.h"
#include "trireme/ops/loss/regression.h"
#include "trireme/ops/loss/sharded_cross_entropy.h"
#include "trireme/ops/matmul/fp8_matmul.h"
#include "trireme/ops/matmul/gated.h"
#include "trireme/ops/matmul/matmul.h"
#include "trireme/ops/norm/batch_norm.h"
#include "trireme/ops/norm/batch_norm_parts.h"
#include "trireme/ops/norm/layer_norm.h"
#include "trireme/ops/norm/rms_norm.h"
#include "trireme/ops/optimizer/adamw.h"
#include "trireme/ops/optimizer/adaptive_scale.h"
#include "trireme/ops/optimizer/clip.h"
#include "trireme/ops/optimizer/descend.h"
#include "trireme/ops/optimizer/sgd.h"
#include "trireme/ops/quantize/fp8.h"
#include "trireme/ops/quantize/int8_linear.h"
#include "trireme/ops/quantize/quantize_int8.h"
#include "trireme/ops/quantize/quantized_linear.h"
#include "trireme/ops/quantize/round_to_codes.h"
#include "trireme/ops/random/dropout.h"
#include "trireme/ops/random/random_init.h"
#include "trireme/ops/shape/reduce.h"
#include "trireme/ops/shape/reshape.h"
#include "trireme/ops/shape/sequence_slice.h"
#include "trireme/ops/shape/slice.h"
#include "trireme/ops/shape/transpose.h"
#include "trireme/ops/tier/tier.h"

namespace trireme::ops {

ir::Registry builtin() {
  ir::Registry registry;
  registry.add(matmul_def());

  registry.add(conv2d_def());
  registry.add(conv2d_grad_input_def());
  registry.add(conv2d_grad_weight_def());
  registry.add(max_pool2d_def());
  registry.add(max_pool2d_grad_def());
  registry.add(avg_pool2d_def());
  registry.add(avg_pool2d_grad_def());
  registry.add(global_avg_pool_def());

  registry.add(attention_def());
  registry.add(attention_grad_def());
  registry.add(document_starts_def());
  registry.add(cached_attention_def());
  registry.add(cached_attention_int8_def());
  registry.add(rotary_def());
  registry.add(softmax_def());
  registry.add(softmax_grad_def());
  registry.add(embedding_def());
  registry.add(embedding_grad_def());
  registry.add(local_tokens_def());

  registry.add(accuracy_def());
  registry.add(cross_entropy_def());
  registry.add(cross_entropy_grad_def());
  registry.add(linear_cross_entropy_def());
  registry.add(linear_lse_def());
  registry.add(linear_cross_entropy_given_def());
  registry.add(lse_terms_def());
  registry.add(join_lse_def());
  registry.add(kl_divergence_def());
  registry.add(kl_divergence_grad_def());
  registry.add(mean_absolute_error_def());
  registry.add(mean_absolute_error_grad_def());
  registry.add(squared_error_def());
  registry.add(squared_error_grad_def());

  registry.add(add_def());
  registry.add(add_n_def());
  registry.add(accumulate_def());
  registry.add(mul_def());
  registry.add(scale_def());
  registry.add(relu_def());
  registry.add(relu_grad_def());
  registry.add(gelu_def());
  registry.add(gelu_grad_def());
  registry.add(silu_def());
  registry.add(silu_grad_def());
  registry.add(swiglu_def());
  registry.add(swiglu_grad_def());
  registry.add(gated_linear_def());
  registry.add(gated_linear_grad_def());
  registry.add(matmul_fp8_def());
  registry.add(fp8_scale_def());
  registry.add(quantize_fp8_def());
  registry.add(cast_def());
  registry.add(fill_def());
  registry.add(select_def());

  registry.add(layer_norm_def());
  registry.add(layer_norm_grad_def());
  registry.add(rms_norm_def());
  registry.add(rms_norm_grad_def());
  registry.add(batch_norm_def());
  registry.add(batch_norm_grad_def());
  registry.add(channel_moments_def());
  registry.add(joint_squares_def());
  registry.add(batch_norm_given_def());
  registry.add(batch_norm_sums_def());
  registry.add(batch_norm_dx_def());

  registry.add(reshape_def());
  registry.add(transpose_def());
  registry.add(slice_def());
  registry.add(sequence_slice_def());
  registry.add(slice_grad_def());
  registry.add(slice_update_def());
  registry.add(concat_def());
  registry.add(reduce_def());
  registry.add(broadcast_def());

  registry.add(all_reduce_def());
  registry.add(reduce_scatter_def());
  registry.add(all_gather_def());
  registry.add(own_rows_def());
  registry.add(all_to_all_def());
  registry.add(halo_exchange_def());
  registry.add(halo_reduce_def());
  registry.add(pack_def());
  registry.add(unpack_def());
  registry.add(weighted_sum_def());
  registry.add(orthonormalise_def());
  registry.add(take_largest_def());
  registry.add(add_taken_def());
  registry.add(keep_largest_def());
  registry.add(ramp_def());
  registry.add(push_def());
  registry.add(pull_def());
  registry.add(send_def());
  registry.add(receive_def());

  registry.add(store_def());
  registry.add(load_def());
  registry.add(rows_def());
  registry.add(assemble_def());

  registry.add(dropout_def());
  registry.add(random_init_def());

  registry.add(adamw_def());
  registry.add(sgd_def());
  registry.add(descend_def());
  registry.add(sum_squares_def());
  registry.add(sum_squares_part_def());
  registry.add(clip_scale_def());
  registry.add(adaptive_scale_def());

  registry.add(quantize_int8_def());
  registry.add(dequantize_int8_def());
  registry.add(quantized_linear_def());
  registry.add(quantized_embedding_def());
  registry.add(dequantize_rows_def());
  registry.add(round_to_codes_def());
  registry.add(round_to_int8_def());
  registry.add(int8_linear_def());
  registry.add(largest_magnitude_def());

  add_cuda_kernels(registry);
  return registry;
}

}  // namespace trireme::ops
