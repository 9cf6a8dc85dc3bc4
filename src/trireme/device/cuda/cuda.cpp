#include "trireme/device/cuda/cuda.h"

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/device/cuda/check.h"

namespace trireme::device::cuda {

void failed(const char* call, const char* reason) { fail("CUDA: {}: {}", call, reason); }

bool built() { return true; }

std::vector<Gpu> gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no GPU: nothing to report later
    return {};
  }
  std::vector<Gpu> all;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    TRI_CUDA(cudaGetDeviceProperties(&p, i));
    all.push_back({p.name, p.totalGlobalMem, p.multiProcessorCount, fmt::format("{}.{}", p.major, p.minor)});
  }
  return all;
}

std::string versions() {
  if (gpus().empty()) return {};
  int driver = 0;
  TRI_CUDA(cudaDriverGetVersion(&driver));
  const auto lt = static_cast<int>(cublasLtGetVersion());
  return fmt::format("CUDA driver {}.{} · cuBLASLt {}.{}.{}", driver / 1000, driver % 1000 / 10, lt / 10000,
                     lt / 100 % 100, lt % 100);
}

std::size_t free_memory() {
  std::size_t left = 0;
  std::size_t total = 0;
  TRI_CUDA(cudaMemGetInfo(&left, &total));
  return left;
}

std::size_t used_memory() {
  std::size_t left = 0;
  std::size_t total = 0;
  TRI_CUDA(cudaMemGetInfo(&left, &total));
  return total - left;
}

void use_gpu(int number) {
  TRI_CUDA(cudaSetDevice(number));
  int count = 0;
  TRI_CUDA(cudaGetDeviceCount(&count));
  for (int other = 0; other < count; ++other) {
    int reachable = 0;
    if (other == number || cudaDeviceCanAccessPeer(&reachable, number, other) != cudaSuccess || reachable == 0)
      continue;
    if (cudaDeviceEnablePeerAccess(other, 0) != cudaSuccess) cudaGetLastError();  // it is, from before
  }
}

void* allocate(std::size_t bytes) {
  if (gpus().empty()) refuse("no CUDA device found");
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    fail("cannot allocate {} of GPU memory: {} are free", format_bytes(bytes), format_bytes(free_memory()));
  }
  return memory;
}

void release(void* memory) noexcept { cudaFree(memory); }

namespace {

// Copies of their own stream do not wait for the queues.
class Transfers {
 public:
  Transfers() { TRI_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Transfers() { cudaStreamDestroy(stream_); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void copy(void* to, const void* from, std::size_t bytes) const {
    TRI_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
    TRI_CUDA(cudaStreamSynchronize(stream_));
  }
  void fill(void* memory, std::byte value, std::size_t bytes) const {
    TRI_CUDA(cudaMemsetAsync(memory, static_cast<int>(value), bytes, stream_));
    TRI_CUDA(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
};

const Transfers& transfers() {
  thread_local const Transfers own;
  return own;
}

}  // namespace

void fill(void* memory, std::byte value, std::size_t bytes) {
  if (bytes > 0) transfers().fill(memory, value, bytes);
}
void to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) transfers().copy(to, from, bytes);
}
void to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) transfers().copy(to, from, bytes);
}

}  // namespace trireme::device::cuda
