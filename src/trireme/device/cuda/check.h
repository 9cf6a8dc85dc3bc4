#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

// Every call of CUDA's libraries goes through one of these; each throws, naming the call, when it failed. The executor
// adds the instruction and the tensor.
namespace trireme::device::cuda {

[[noreturn]] void failed(const char* call, const char* reason);

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    failed(call, cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    failed(call, cublasLtGetStatusString(status));
}
// After a kernel was launched.
inline void launched(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace trireme::device::cuda

#define TRI_CUDA(call) ::trireme::device::cuda::check(call, #call)
