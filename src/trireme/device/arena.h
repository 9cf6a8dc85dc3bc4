#pragma once
#include <cstddef>

namespace trireme::device {

// One block of host memory, allocated once. Guard bytes on both sides show a kernel that wrote outside.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Throws when a guard byte has changed.
  void check_guards() const;

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trireme::device
