#include "trireme/device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::device {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::byte kPattern{0xA5};

std::byte* map_host(std::size_t bytes, std::size_t mapped) {
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot allocate an arena of {}: {}", format_bytes(bytes), std::strerror(errno));
  madvise(memory, mapped, MADV_HUGEPAGE);  // fewer TLB misses; harmless where not available
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::size_t free_bytes(Kind kind) {
  TRI_CHECK(kind == Kind::cuda, "the host's memory is shared by everybody");
  return cuda::free_memory();
}

Arena::Arena(std::size_t bytes, Kind kind) : kind_(kind), bytes_(bytes) {
  mapped_ = (bytes + 2 * kGuard + 4095) / 4096 * 4096;
  if (kind == Kind::cuda) {
    mapping_ = static_cast<std::byte*>(cuda::allocate(mapped_));
    data_ = mapping_ + kGuard;
    cuda::fill(mapping_, kPattern, kGuard);
    cuda::fill(data_, std::byte{0}, bytes_);
    cuda::fill(data_ + bytes_, kPattern, mapped_ - kGuard - bytes_);
    return;
  }
  mapping_ = map_host(bytes, mapped_);
  data_ = mapping_ + kGuard;
  std::fill_n(mapping_, kGuard, kPattern);
  std::fill(data_ + bytes_, mapping_ + mapped_, kPattern);
}

Arena::~Arena() {
  if (kind_ == Kind::cuda)
    cuda::release(mapping_);
  else
    munmap(mapping_, mapped_);
}

void Arena::check_guards() const {
  std::vector<std::byte> copy;
  const auto intact = [&](const std::byte* begin, const std::byte* end) {
    if (kind_ == Kind::cuda) {
      copy.resize(static_cast<std::size_t>(end - begin));
      cuda::to_host(copy.data(), begin, copy.size());
      begin = copy.data();
      end = begin + copy.size();
    }
    return std::all_of(begin, end, [](std::byte b) { return b == kPattern; });
  };
  if (!intact(mapping_, data_)) fail("something wrote before the arena's first byte");
  if (!intact(data_ + bytes_, mapping_ + mapped_)) fail("something wrote behind the arena's last byte");
}

void Arena::read(std::size_t offset, std::span<std::byte> to) const {
  TRI_CHECK(offset + to.size() <= bytes_, "the arena ends at {}, not {}", bytes_, offset + to.size());
  if (kind_ == Kind::cuda)
    cuda::to_host(to.data(), data_ + offset, to.size());
  else if (!to.empty())
    std::memcpy(to.data(), data_ + offset, to.size());
}

void Arena::write(std::size_t offset, std::span<const std::byte> from) const {
  TRI_CHECK(offset + from.size() <= bytes_, "the arena ends at {}, not {}", bytes_, offset + from.size());
  if (kind_ == Kind::cuda)
    cuda::to_device(data_ + offset, from.data(), from.size());
  else if (!from.empty())
    std::memcpy(data_ + offset, from.data(), from.size());
}

}  // namespace trireme::device
