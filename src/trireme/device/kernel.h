#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "trireme/core/thread_pool.h"

namespace trireme::device {

enum class Kind { cpu, cuda };
const char* name_of(Kind kind);

// Everything a kernel may touch when it is launched. Absent optional inputs are null.
struct Launch {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace = nullptr;      // as many bytes as the kernel's definition asked for, 64-byte aligned
  ThreadPool* pool = nullptr;     // CPU: the rank's compute threads
  void* native_stream = nullptr;  // CUDA: the cudaStream_t

  template <class T>
  const T* in(std::size_t i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <class T>
  T* out(std::size_t i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// A kernel prepared once for given types and attributes, launched many times. Launching allocates nothing.
// One kernel object is only ever launched by one stream at a time, so it may keep library objects of its own.
class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;
  virtual void launch(const Launch& launch) = 0;
};

// A kernel from a callable that captured what it was prepared for.
template <class F>
std::shared_ptr<Kernel> make_kernel(F function) {
  class FunctionKernel final : public Kernel {
   public:
    explicit FunctionKernel(F f) : function_(std::move(f)) {}
    void launch(const Launch& launch) override { function_(launch); }

   private:
    F function_;
  };
  return std::make_shared<FunctionKernel>(std::move(function));
}

}  // namespace trireme::device
