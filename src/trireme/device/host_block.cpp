#include "trireme/device/host_block.h"

#include <cstring>
#include <new>

#include "trireme/device/cuda/cuda.h"

namespace trireme::device {

namespace {
constexpr std::align_val_t kAlignment{64};
}  // namespace

HostBlock::HostBlock(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  if (bytes == 0) return;
  if (kind == Kind::cuda) {
    data_ = static_cast<std::byte*>(cuda::allocate_host(bytes));
  } else {
    data_ = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    std::memset(data_, 0, bytes);
  }
}

HostBlock::~HostBlock() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::cuda)
    cuda::release_host(data_, bytes_);
  else
    ::operator delete(data_, kAlignment);
}

namespace {

class PinnedMemory final : public std::pmr::memory_resource {
  static constexpr std::size_t kSmall = std::size_t{1} << 16;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return bytes < kSmall ? ::operator new(bytes, std::align_val_t(alignment)) : cuda::allocate_host(bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    if (bytes < kSmall)
      ::operator delete(memory, std::align_val_t(alignment));
    else
      cuda::release_host(memory, bytes);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource* host_memory(Kind kind) {
  static PinnedMemory pinned;
  return kind == Kind::cuda ? &pinned : std::pmr::get_default_resource();
}

}  // namespace trireme::device
