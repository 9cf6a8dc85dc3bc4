#pragma once
#include <cstddef>

#include "trireme/device/cuda/convolution.h"

// Convolutions of few channels with a stride of two, such as the first of a network for images: the tensor cores want
// channels by eights. Each square of 2×2 pixels becomes one pixel of four times the channels, which makes of
//
//   y[p] = Σ_r x[2p − padding + r]·w[r]      y[p] = Σ_u z[p + u]·v[u],  z[t] = x[2(t − o)], x[2(t − o) + 1]
//
// a convolution without stride and of half the extent, in either dimension: with o = ⌈padding/2⌉, v[u] are the weights
// of r = 2u − (2o − padding) and the next one, zero outside.
namespace trireme::ops::cuda {

bool foldable(const device::cuda::ConvolutionSpec& spec);
device::cuda::ConvolutionSpec folded(const device::cuda::ConvolutionSpec& spec);

// Bytes of z and v.
std::size_t folded_image_bytes(const device::cuda::ConvolutionSpec& spec);
std::size_t folded_weight_bytes(const device::cuda::ConvolutionSpec& spec);

// `stream` is a cudaStream_t.
void fold_images(void* stream, const device::cuda::ConvolutionSpec& spec, const void* x, void* z);
void fold_weights(void* stream, const device::cuda::ConvolutionSpec& spec, const void* w, void* v);
// Of gradients, in the type that `spec` has for its output.
void unfold_weights(void* stream, const device::cuda::ConvolutionSpec& spec, const void* v, void* w);

}  // namespace trireme::ops::cuda
