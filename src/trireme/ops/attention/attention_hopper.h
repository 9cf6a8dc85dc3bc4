#pragma once
#include "trireme/device/cuda/flash.h"

namespace trireme::ops::cuda {

// Whether the sizes are such as our own kernels for Hopper's tensor cores take, of attention and of its gradient: 16
// bits, any number of rows, heads of up to 128 in multiples of 8, keys shared by groups of them.
bool hopper_attention_fits(const device::cuda::FlashSpec& spec);

// Causal attention within documents by such a kernel: cuDNN knows no documents. `starts` as attention has it. No
// scratch.
void hopper_attention(void* stream, const device::cuda::FlashSpec& spec, const void* q, const void* k, const void* v,
                      const std::int32_t* starts, void* o, float* lse);

}  // namespace trireme::ops::cuda
