#include "trireme/ops/cuda/common.h"
#include "trireme/ops/cuda/hopper.h"

namespace trireme::ops::cuda {

bool runs_on_hopper() {
  int device = 0, major = 0, minor = 0;
  TRI_CUDA(cudaGetDevice(&device));
  TRI_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TRI_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

}  // namespace trireme::ops::cuda
