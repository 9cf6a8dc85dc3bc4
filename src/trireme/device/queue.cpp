#include "trireme/device/queue.h"

#include <cstring>
#include <new>

#include "trireme/device/cuda/cuda.h"

namespace trireme::device {

std::unique_ptr<Queue> make_queue(Kind kind, const QueueShape& shape) {
  return kind == Kind::cpu ? nullptr : cuda::make_queue(shape);
}

HostBlock::HostBlock(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  if (bytes == 0) return;
  if (kind == Kind::cuda) {
    data_ = static_cast<std::byte*>(cuda::allocate_host(bytes));
  } else {
    data_ = static_cast<std::byte*>(::operator new(bytes));
    std::memset(data_, 0, bytes);
  }
}

HostBlock::~HostBlock() {
  if (data_ == nullptr) return;
  if (kind_ == Kind::cuda)
    cuda::release_host(data_, bytes_);
  else
    ::operator delete(data_);
}

}  // namespace trireme::device
