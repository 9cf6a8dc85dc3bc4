#pragma once
#include <span>

#include "trireme/device/cuda/check.h"
#include "trireme/device/queue.h"

namespace trireme::device::cuda {

// Copies within the GPU's memory by as few kernels as can be: each alone would take longer to start than to do.
void launch_copies(cudaStream_t stream, std::span<const Queue::Copy> copies);

}  // namespace trireme::device::cuda
