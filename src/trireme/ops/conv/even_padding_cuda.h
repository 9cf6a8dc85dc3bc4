#pragma once
#include <cstddef>

#include "trireme/device/cuda/convolution.h"

// Weight gradients of slices of images, which have more padding at one edge than at the other: cuDNN 9's kernels for
// f32 take some of them for evenly padded. The larger padding becomes pixels of zeros in a copy of the images.
namespace trireme::ops::cuda {

// With evenly padded images of h and w pixels in the place of the spec's.
device::cuda::ConvolutionSpec evened(const device::cuda::ConvolutionSpec& spec);
std::size_t evened_image_bytes(const device::cuda::ConvolutionSpec& spec);

// `stream` is a cudaStream_t.
void even_images(void* stream, const device::cuda::ConvolutionSpec& spec, const void* x, void* z);

}  // namespace trireme::ops::cuda
