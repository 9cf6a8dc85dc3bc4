#include "trireme/device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::device {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::byte kPattern{0xA5};

}  // namespace

Arena::Arena(std::size_t bytes) : bytes_(bytes) {
  mapped_ = (bytes + 2 * kGuard + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot allocate an arena of {}: {}", format_bytes(bytes), std::strerror(errno));
  mapping_ = static_cast<std::byte*>(memory);
  data_ = mapping_ + kGuard;
  madvise(mapping_, mapped_, MADV_HUGEPAGE);  // fewer TLB misses; harmless where not available
  std::fill_n(mapping_, kGuard, kPattern);
  std::fill(data_ + bytes_, mapping_ + mapped_, kPattern);
}

Arena::~Arena() { munmap(mapping_, mapped_); }

void Arena::check_guards() const {
  const auto intact = [](const std::byte* begin, const std::byte* end) {
    return std::all_of(begin, end, [](std::byte b) { return b == kPattern; });
  };
  if (!intact(mapping_, data_)) fail("something wrote before the arena's first byte");
  if (!intact(data_ + bytes_, mapping_ + mapped_)) fail("something wrote behind the arena's last byte");
}

}  // namespace trireme::device
