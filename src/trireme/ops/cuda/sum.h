#pragma once
#include "trireme/ops/cuda/common.h"

namespace trireme::ops::cuda {

// y = scale · Σ partials, by one block: the end of a loss.
template <class T>
__global__ void sum_kernel(const T* partials, std::int64_t count, double scale, float* y) {
  __shared__ double shared[32];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += static_cast<double>(partials[i]);
  sum = block_reduce<Add>(sum, shared);
  if (threadIdx.x == 0) *y = static_cast<float>(scale * sum);
}

}  // namespace trireme::ops::cuda
