#include "trireme/device/queue.h"

#include <new>

#include "trireme/device/cuda/cuda.h"

namespace trireme::device {

std::unique_ptr<Queue> make_queue(Kind kind, std::size_t marks) {
  return kind == Kind::cpu ? nullptr : cuda::make_queue(marks);
}

HostBlock::HostBlock(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = static_cast<std::byte*>(kind == Kind::cuda ? cuda::allocate_host(bytes) : ::operator new(bytes));
}

HostBlock::~HostBlock() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::cuda)
    cuda::release_host(data_);
  else
    ::operator delete(data_);
}

}  // namespace trireme::device
