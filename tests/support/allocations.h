#pragma once
#include <cstddef>

namespace trireme::testing {

// What the process allocated while it was counted: every allocation, by whatever thread, in whatever library, but for
// those of oneDNN. It keeps the arguments of a call in small containers of its own and gives no way around it; those
// are counted apart, and none may be large enough to be scratch memory.
struct Allocations {
  std::size_t calls = 0;
  std::size_t bytes = 0;
  std::size_t largest = 0;
  std::size_t largest_in_onednn = 0;
};

// One count at a time.
void count_allocations();
Allocations stop_counting();

template <class F>
Allocations allocations_of(F&& work) {
  count_allocations();
  work();
  return stop_counting();
}

// False: a sanitizer brings an allocator of its own, and nothing is counted.
bool allocations_are_counted();

// What oneDNN may take for a call's arguments. Its kernels for CPUs without AVX-512 allocate their packing buffers
// (device/cpu/onednn.h): there is no limit there.
std::size_t most_for_onednn();

}  // namespace trireme::testing
