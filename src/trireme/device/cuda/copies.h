#pragma once
#include <span>

#include "trireme/device/cuda/check.h"
#include "trireme/device/stream.h"

namespace trireme::device::cuda {

// Copies within the GPU's memory by as few kernels as can be: each alone would take longer to start than to do.
void launch_copies(cudaStream_t stream, std::span<const Streams::Copy> copies);

}  // namespace trireme::device::cuda
