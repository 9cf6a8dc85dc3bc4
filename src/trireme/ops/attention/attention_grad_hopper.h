#pragma once
#include "trireme/device/cuda/flash.h"

namespace trireme::ops::cuda {

// The gradient of attention by a kernel of our own for Hopper's tensor cores: 16 bits, any number of rows, heads of up
// to 128 in multiples of 8, keys shared by groups of them. The same bits every time, and no scores in memory.
bool hopper_attention_grad_fits(const device::cuda::FlashSpec& spec);  // from the sizes alone
bool hopper_attention_grad_runs();                                     // whether the GPU is one
std::size_t hopper_attention_grad_workspace(const device::cuda::FlashSpec& spec, bool documents);
// `starts` as attention has it: null without documents.
void hopper_attention_grad(void* stream, const device::cuda::FlashSpec& spec, const device::cuda::Flash::Gradients& g,
                           const std::int32_t* starts, void* workspace);

}  // namespace trireme::ops::cuda
