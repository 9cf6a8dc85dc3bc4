#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "trireme/device/stream.h"

// All that the rest of the program knows of CUDA. A build without it has missing.cpp in its place: no GPU is ever
// there, and everything else fails, saying so.
namespace trireme::device::cuda {

struct Gpu {
  std::string name;
  std::size_t memory = 0;  // bytes
  int multiprocessors = 0;
  std::string capability;  // "9.0"
};
bool built();
std::vector<Gpu> gpus();
// "cuBLASLt 13.1 · driver 13.0"; empty without GPUs.
std::string versions();
std::size_t free_memory();
std::size_t used_memory();  // by everyone: the driver, libraries and other programs included
// The calling thread's GPU from now on, by number; it can reach the memory of the others where they are connected.
void use_gpu(int number);

void* allocate(std::size_t bytes);
void release(void* memory) noexcept;
void fill(void* memory, std::byte value, std::size_t bytes);
void to_host(void* to, const void* from, std::size_t bytes);
void to_device(void* to, const void* from, std::size_t bytes);

// Pinned, and zero. Large blocks are touched by all cores.
void* allocate_host(std::size_t bytes);
void release_host(void* memory, std::size_t bytes) noexcept;

std::unique_ptr<Streams> make_streams(const StreamShape& shape = {});

}  // namespace trireme::device::cuda
