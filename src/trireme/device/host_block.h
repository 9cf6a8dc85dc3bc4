#pragma once
#include <cstddef>
#include <memory>
#include <memory_resource>

#include "trireme/device/kernel.h"

namespace trireme::device {

// Memory of the host that the device of that kind copies to and from by itself. Starts as zeros.
class HostBlock {
 public:
  HostBlock(Kind kind, std::size_t bytes);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Kind kind_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of that kind for containers; what is small is ordinary memory. It lives as long as the process.
std::pmr::memory_resource* host_memory(Kind kind);

}  // namespace trireme::device
