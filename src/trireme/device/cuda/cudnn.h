#pragma once
#include <cudnn_frontend.h>

// For the sources that call cuDNN through cudnn-frontend. The library is opened when it is first asked for.
namespace trireme::device::cuda {

namespace fe = cudnn_frontend;

// Each thread has its own: a handle remembers the stream it was last used on. Null where the library is missing.
cudnnHandle_t cudnn_handle();
// The thread's handle, for work on that stream.
cudnnHandle_t cudnn_handle(void* stream);

void fe_check(fe::error_t status, const char* call);

// The library wants its scratch aligned so; workspaces are less.
inline constexpr std::size_t kCudnnAlignment = 256;
inline void* cudnn_scratch(void* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (kCudnnAlignment - address % kCudnnAlignment) % kCudnnAlignment;
}

}  // namespace trireme::device::cuda
