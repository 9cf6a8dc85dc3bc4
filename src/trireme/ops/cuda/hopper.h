#pragma once

namespace trireme::ops::cuda {

// Whether the GPU is a Hopper, and the build has kernels for it. Which sizes each of them takes, it says itself.
bool runs_on_hopper();

}  // namespace trireme::ops::cuda
