// Every allocation of a test's process goes through the functions below.
#include "support/allocations.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace trireme::testing {

std::size_t most_for_onednn() {
  constexpr std::size_t kArguments = 4096;  // 3072 are the most seen: a convolution with strides and dilations
  return __builtin_cpu_supports("avx512bw") != 0 ? kArguments : std::numeric_limits<std::size_t>::max();
}

}  // namespace trireme::testing

// The sanitizers bring an allocator of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace trireme::testing {

void count_allocations() {}
Allocations stop_counting() { return {}; }
bool allocations_are_counted() { return false; }

}  // namespace trireme::testing

#else

namespace {

std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> allocated{0};  // bytes
std::atomic<std::size_t> largest{0};
std::atomic<std::size_t> largest_in_onednn{0};

void note(std::atomic<std::size_t>& most, std::size_t bytes) {
  std::size_t seen = most.load(std::memory_order_relaxed);
  while (seen < bytes && !most.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void count(std::size_t bytes, const void* caller) {
  if (!counting.load(std::memory_order_relaxed)) return;
  Dl_info info{};
  const bool onednn =
      dladdr(caller, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
  if (!onednn) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    allocated.fetch_add(bytes, std::memory_order_relaxed);
    note(largest, bytes);
    return;
  }
  note(largest_in_onednn, bytes);
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t n, std::size_t bytes);            // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* old, std::size_t bytes);               // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* memory);                                   // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) noexcept {
  count(n * bytes, __builtin_return_address(0));
  return __libc_calloc(n, bytes);
}
void* realloc(void* old, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes, __builtin_return_address(0));
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? ENOMEM : 0;
}
}

// In addition to malloc, so that the caller is known.
void* operator new(std::size_t bytes) {
  count(bytes, __builtin_return_address(0));
  void* memory = __libc_malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  count(bytes, __builtin_return_address(0));
  void* memory = __libc_memalign(static_cast<std::size_t>(alignment), bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { __libc_free(memory); }

namespace trireme::testing {

void count_allocations() {
  allocations = 0;
  allocated = 0;
  largest = 0;
  largest_in_onednn = 0;
  counting = true;
}

Allocations stop_counting() {
  counting = false;
  return {allocations, allocated, largest, largest_in_onednn};
}

bool allocations_are_counted() { return true; }

}  // namespace trireme::testing

#endif
