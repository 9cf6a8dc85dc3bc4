#pragma once
#include <cstddef>
#include <span>

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

}  // namespace trireme::device
