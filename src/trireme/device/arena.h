#pragma once
#include <cstddef>
#include <span>

#include "trireme/device/kernel.h"

namespace trireme::device {

// Bytes of a GPU's memory that nobody has allocated.
std::size_t free_bytes(Kind kind);

// One block of a device's memory, allocated once. Guard bytes on both sides show a kernel that wrote outside.
class Arena {
 public:
  explicit Arena(std::size_t bytes, Kind kind = Kind::cpu);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Kind kind() const { return kind_; }
  // Only the memory of a CPU can be read and written through it.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Throws when a guard byte has changed.
  void check_guards() const;

  // Between the arena and the host, whatever the device. They return when the copy is done, whatever the device's
  // queues are busy with.
  void read(std::size_t offset, std::span<std::byte> to) const;
  void write(std::size_t offset, std::span<const std::byte> from) const;

 private:
  Kind kind_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trireme::device
