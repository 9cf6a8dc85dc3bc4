#pragma once
#include "trireme/device/cuda/flash.h"

namespace trireme::ops::cuda {

// Causal attention within documents by a kernel of our own for Hopper's tensor cores, for what
// hopper_attention_grad_fits: cuDNN knows no documents. `starts` as attention has it. No scratch.
void hopper_attention(void* stream, const device::cuda::FlashSpec& spec, const void* q, const void* k, const void* v,
                      const std::int32_t* starts, void* o, float* lse);

}  // namespace trireme::ops::cuda
