#include "trireme/device/cuda/cudnn.h"

#include <dlfcn.h>

#include "trireme/core/error.h"
#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/flash.h"

// What the frontend calls the library through, once it is opened.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace trireme::device::cuda {
namespace {

bool opened() {
  static const bool found = [] {
    fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    return fe::cudnn_dlhandle != nullptr;
  }();
  return found;
}

}  // namespace

cudnnHandle_t cudnn_handle() {
  struct Handle {
    cudnnHandle_t value = nullptr;
    Handle() {
      if (!opened()) return;
      try {
        if (fe::detail::create_handle(&value) != CUDNN_STATUS_SUCCESS) value = nullptr;
      } catch (const std::exception&) {  // another version of it
        value = nullptr;
      }
    }
    ~Handle() {
      if (value != nullptr) fe::detail::destroy_handle(value);
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
  };
  thread_local const Handle own;
  return own.value;
}

cudnnHandle_t cudnn_handle(void* stream) {
  const cudnnHandle_t own = cudnn_handle();
  if (fe::detail::set_stream(own, static_cast<cudaStream_t>(stream)) != CUDNN_STATUS_SUCCESS)
    failed("cudnnSetStream", "refused");
  return own;
}

void fe_check(fe::error_t status, const char* call) {
  if (status.is_bad()) failed(call, status.get_message().c_str());
}

const char* cudnn_version() {
  static const std::string text = [] {
    if (cudnn_handle() == nullptr) return std::string();
    const auto version = static_cast<long>(fe::detail::get_backend_version());
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }();
  return text.c_str();
}

}  // namespace trireme::device::cuda
