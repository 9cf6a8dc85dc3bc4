#include "trireme/ops/quantize/cuda_kernels.h"

#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops {

void add_quantize_cuda(ir::Registry& registry) {
  on_cuda(registry, "quantize_int8", prepare_quantize_int8_cuda);
  on_cuda(registry, "fp8_scale", prepare_fp8_scale_cuda, fp8_scale_workspace_cuda);
  on_cuda(registry, "quantize_fp8", prepare_quantize_fp8_cuda);
  on_cuda(registry, "dequantize_int8", prepare_dequantize_int8_cuda);
  on_cuda(registry, "quantized_linear", prepare_quantized_linear_cuda, quantized_linear_workspace_cuda);
  on_cuda(registry, "quantized_embedding", prepare_quantized_embedding_cuda);
  on_cuda(registry, "dequantize_rows", prepare_dequantize_rows_cuda);
  on_cuda(registry, "int8_linear", prepare_int8_linear_cuda);
  on_cuda(registry, "round_to_int8", prepare_round_to_int8_cuda);
  on_cuda(registry, "largest_magnitude", prepare_largest_magnitude_cuda);
  on_cuda(registry, "round_to_codes", prepare_round_to_codes_cuda);
}

}  // namespace trireme::ops
