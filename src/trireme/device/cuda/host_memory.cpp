#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/check.h"
#include "trireme/device/cuda/cuda.h"

namespace trireme::device::cuda {
namespace {

// The driver pins page by page on one core, some seconds for every ten gigabytes: from here on it is given huge pages
// that are there already.
constexpr std::size_t kLarge = std::size_t{256} << 20;

void touch(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kStep = 4096;
  const std::size_t workers = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  const std::size_t share = (bytes / workers + kStep) / kStep * kStep;
  std::vector<std::thread> threads;
  for (std::size_t begin = 0; begin < bytes; begin += share)
    threads.emplace_back([=] {
      for (std::size_t at = begin; at < std::min(bytes, begin + share); at += kStep) memory[at] = std::byte{0};
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void* allocate_host(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes < kLarge) {
    if (cudaMallocHost(&memory, bytes) == cudaSuccess) {
      std::memset(memory, 0, bytes);
      return memory;
    }
  } else {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("cannot allocate {} of the host's memory", format_bytes(bytes));
    madvise(memory, bytes, MADV_HUGEPAGE);
    touch(static_cast<std::byte*>(memory), bytes);
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess) return memory;
    munmap(memory, bytes);
  }
  cudaGetLastError();
  fail("cannot allocate {} of pinned host memory", format_bytes(bytes));
}

void release_host(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLarge) {
    cudaFreeHost(memory);
    return;
  }
  cudaHostUnregister(memory);
  munmap(memory, bytes);
}

}  // namespace trireme::device::cuda
