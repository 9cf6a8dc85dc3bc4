#pragma once
#include "trireme/device/cuda/flash.h"

namespace trireme::ops::cuda {

// The gradient of attention by a kernel of our own for Hopper's tensor cores, for what hopper_attention_fits. The same
// bits every time, and no scores in memory.
std::size_t hopper_attention_grad_workspace(const device::cuda::FlashSpec& spec, bool documents);
// `starts` as attention has it: null without documents.
void hopper_attention_grad(void* stream, const device::cuda::FlashSpec& spec, const device::cuda::Flash::Gradients& g,
                           const std::int32_t* starts, void* workspace);

}  // namespace trireme::ops::cuda
